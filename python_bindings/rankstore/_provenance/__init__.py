# SPDX-License-Identifier: Apache-2.0
"""What a dataset was made from: options, code, and what its directory says of itself."""
