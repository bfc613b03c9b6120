"""A module as a program, as `python -m` runs it: `module.py torch.distributed.run args...`"""

import os
import runpy
import sys

sys.path[0] = os.getcwd()
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
