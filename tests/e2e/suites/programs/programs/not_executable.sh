#!/bin/sh
echo took 1 ms
