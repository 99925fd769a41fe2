import sys

sys.exit("no GPU here")  # problem: reading it raised SystemExit
