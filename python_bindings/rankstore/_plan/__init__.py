# SPDX-License-Identifier: Apache-2.0
"""Which samples form which batch."""
