# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu/run and the kit do: every step, a line for each, and RESULTS.md.

Usage: run.py GPU_EXCHANGE [--stand-in LIBRARY] [--results FILE] [--log FILE] [WORD...]
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import of_exchange  # noqa: E402
import of_torch  # noqa: E402
import steps  # noqa: E402


def every_step():
    """Those that need no GPU come first, then its first call, then the rest; what may not end comes last."""
    messages, first_call, *rest = of_exchange.STEPS
    return [messages, *of_torch.FIRST, first_call, *of_torch.SECOND, *rest, *of_torch.STEPS, *of_torch.LAST]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exchange", metavar="GPU_EXCHANGE", help="the program gpu_exchange")
    parser.add_argument("--stand-in", metavar="LIBRARY", help="the tests' stand-in of CUDA and NCCL in place of a GPU")
    parser.add_argument("--results", metavar="FILE", help="where RESULTS.md goes; default: nowhere")
    parser.add_argument("--log", metavar="FILE", help="where all goes that the programs print; default: nowhere")
    parser.add_argument("only", metavar="WORD", nargs="*", help="run the steps whose title has one of these; default: all")
    options = parser.parse_intermixed_args()
    double = os.path.abspath(options.stand_in) if options.stand_in else None
    machine = steps.Machine(os.path.abspath(options.exchange), double, options.log)
    return steps.main(every_step(), machine, options.results, options.only)


if __name__ == "__main__":
    sys.exit(main())
