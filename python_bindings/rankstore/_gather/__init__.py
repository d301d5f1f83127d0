# SPDX-License-Identifier: Apache-2.0
"""Brings uneven results of all ranks to one process or into files."""
