# SPDX-License-Identifier: Apache-2.0
"""tools/site makes every page, with no link that leads nowhere, and a reference of every public name."""
import ast
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile


def tool():
    loader = importlib.machinery.SourceFileLoader("site_tool", "tools/site")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("site_tool", loader))
    loader.exec_module(module)
    return module


def public_names():
    with open("python_bindings/rankstore/__init__.py", encoding="utf-8") as file:
        for node in ast.parse(file.read()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                return set(ast.literal_eval(node.value))
    raise AssertionError("the package has no __all__")


def main():
    site = tool()
    known = site.definitions()
    # Errors have a table of their own on the page about troubleshooting.
    missing = [name for name in public_names() - {name for _, names in site.REFERENCE for name in names}
               if name in known and not name.endswith("Error")]
    print(f"FAIL the_reference_has_every_public_name: {', '.join(sorted(missing))}" if missing
          else "ok the_reference_has_every_public_name")
    with tempfile.TemporaryDirectory(prefix="rankstore-site-") as out:
        done = subprocess.run([sys.executable, "tools/site", out], capture_output=True, text=True, timeout=3000)
        pages = [page.replace("README.md", "index.html").replace(".md", ".html") for page in site.listed(site.PAGES)]
        away = [page for page in pages if not os.path.exists(os.path.join(out, page))]
        print("ok every_page_is_made_and_every_link_leads_somewhere" if done.returncode == 0 and not away
              else f"FAIL every_page_is_made_and_every_link_leads_somewhere: {away}\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main()
