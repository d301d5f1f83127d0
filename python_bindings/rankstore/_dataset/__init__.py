# SPDX-License-Identifier: Apache-2.0
"""Opens, reads, selects and maintains datasets."""
