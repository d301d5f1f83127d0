# SPDX-License-Identifier: Apache-2.0
"""The process that reaches an object store for one rank: `python -m rankstore.store_helper`, started by the rank itself."""
from ._stores.serve import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
