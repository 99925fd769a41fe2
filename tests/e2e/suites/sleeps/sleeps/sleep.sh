sleep "${PERFSVC_TEST_SLEEP:-0.3}"
echo took 1 ms
