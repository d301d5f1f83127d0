# SPDX-License-Identifier: Apache-2.0
"""Texts say things in the field's words: pages, the public headers, every command's --help, comments of C files, docstrings, and the
strings of both, which are errors for the most part."""
import ast
import glob
import os
import re
import subprocess
import sys

PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "FORMAT.md", "SECURITY.md", "tests/README.md", "docs/*.md",
         "python_bindings/README.md",
         "python_bindings/docs/*.md", "include/rankstore.h", "include/rankstore/*.h"]
# A word that misleads, and what says it plainly.
PRIVATE = {
    r"told|tells? of|is told": "reported, knows, says",
    r"handed (out|on|over)?|hands? (out|over|on)": "sent, returned, passed",
    r"tak(e|es|en) in": "received, read",
    r"that which|what is left out": "name the thing",
}
# Turns that mislead in errors.
TURNS = {
    r"(?<!there\s)(is|are) no(?! (longer|more|such)\b)": "is not a, does not fit",
    r"(goes|go) with": "needs, only for",
    r"one of them above|one above(?!\s0)": "one must be above 0",
    r"(?<!left\s)(?<!leave\s)(?<!leaves\s)behind(?!\.h)": "after",
}


def private(text, words=PRIVATE):
    """(line, word, better) of each private word, outside blocks of code."""
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.S)
    for word, better in words.items():
        word = word.replace(" ", r"\s+")  # a line may end within
        for found in re.finditer(rf"\b({word})\b", text, re.I):
            yield text.count("\n", 0, found.start()) + 1, found[0], better


def spaces(text):
    return re.sub(r"[^\n]", " ", text)


def parts_of(text, beginnings):
    """What of a C file begins with one of these, comments or strings, each in its line."""
    parts = re.split(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/|//[^\n]*)', text, flags=re.S)
    return "".join(part if part.startswith(beginnings) else spaces(part) for part in parts)


def comments(text):
    return parts_of(text, ("/*", "//"))


def strings(text):
    """The strings of a C file; pieces of one string are one text."""
    return re.sub(r'"(\s*)"', r"\1", parts_of(text, ('"',)))


def docstring_nodes(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            yield node.body[0].value


def python_strings(text):
    """The strings of a Python file that are not docstrings, each on the line where it begins."""
    tree, lines = ast.parse(text), [""] * (text.count("\n") + 1)
    skip = set(docstring_nodes(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skip:
            lines[node.lineno - 1] += node.value.replace("\n", " ") + " "
    return "\n".join(lines)


def docstrings(text):
    """The docstrings of a Python file, each in its line."""
    lines = [""] * text.count("\n") + [""]
    for node in docstring_nodes(ast.parse(text)):
        for place, line in enumerate(node.value.split("\n"), node.lineno - 1):
            lines[place] = line
    return "\n".join(lines)


def code(of_c, of_python):
    for top in ("src", "tools/rankstore", "python_bindings/src"):
        for path in sorted(glob.glob(f"{top}/**/*", recursive=True)):
            if path.endswith((".c", ".cc", ".h")):
                with open(path, encoding="utf-8") as file:
                    yield path, of_c(file.read())
    for path in sorted(glob.glob("python_bindings/rankstore/**/*.py", recursive=True)):
        with open(path, encoding="utf-8") as file:
            yield path, of_python(file.read())


def texts(build):
    for page in sorted(path for pattern in PAGES for path in glob.glob(pattern)):
        with open(page, encoding="utf-8") as file:
            yield page, file.read()
    program = os.path.join(build, "tools", "rankstore", "rankstore")
    usage = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=600).stdout
    for name in re.findall(r"^  (\w+) ", usage.partition("Commands:\n")[2].partition("\n\n")[0], re.M):
        done = subprocess.run([program, name, "--help"], capture_output=True, text=True, check=True, timeout=600)
        yield f"rankstore {name} --help", done.stdout


def main():
    read = {**dict(texts(sys.argv[1])), **dict(code(comments, docstrings))}
    found = [f"{name}:{line}: '{word}'; say: {better}" for name, text in read.items() for line, word, better in private(text)]
    found += [f"{name}:{line}: '{word}'; say: {better}" for name, text in code(strings, python_strings)
              for line, word, better in private(text, {**PRIVATE, **TURNS})]
    print("FAIL texts_use_the_field_s_words:\n  " + "\n  ".join(found) if found else "ok texts_use_the_field_s_words")
    planted = list(private("It is told.\n```\ntold\n```\nBytes are taken in.\n"))
    planted += private(comments('/* Asks\n * and is told. */\nconst char *told = "told";\n'))
    planted += private(docstrings('told = 1\n\n\ndef one():\n    """It is told."""\n'))
    planted += private(strings('/* goes with */\nfail("a goes "\n     "with b");\n'), TURNS)
    planted += private(python_strings('def one():\n    """It goes with two."""\n    raise ValueError(f"{a} is no size")\n'), TURNS)
    enough = len(read) > 300 and [line for line, _, _ in planted] == [1, 5, 2, 5, 2, 3]
    print("ok a_private_word_is_found" if enough else f"FAIL a_private_word_is_found: {len(read)} texts, {planted}")


if __name__ == "__main__":
    main()
