# problem of the file: 'benchmark' is a dict
benchmark = {"axes": {}}
