# SPDX-License-Identifier: Apache-2.0
"""The public ABI only grows. tests/abi.json lists what programs may rely on: the library's symbols, and each public struct's fields
with offset and size. A symbol or field that is gone or has moved fails, and so does one that the list lacks: UPDATE=1 adds it. A struct
that begins with struct_size may grow; any other keeps its size, and new fields take the place of its `reserved` bytes."""
import json
import os
import re
import subprocess
import sys
import tempfile

# Functions of glibc after 2.28, which a wheel is linked against. Symbol versions cannot tell: 2.34 gave new ones to old functions.
AFTER_2_28 = set("""posix_spawn_file_actions_addchdir_np posix_spawn_file_actions_addfchdir_np getcpu gettid tgkill getdents64 twalk_r
    pthread_clockjoin_np pthread_cond_clockwait pthread_mutex_clocklock pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock sem_clockwait
    pthread_attr_setsigmask_np pthread_getattr_default_np sigabbrev_np sigdescr_np strerrorname_np strerrordesc_np mallinfo2 close_range
    closefrom _Fork posix_spawn_file_actions_addclosefrom_np execveat timespec_getres epoll_pwait2 arc4random arc4random_buf
    arc4random_uniform process_madvise process_mrelease pidfd_open pidfd_getfd pidfd_send_signal fsopen fsconfig fsmount fspick move_mount
    open_tree mount_setattr strlcpy strlcat wcslcpy wcslcat pidfd_spawn pidfd_spawnp pidfd_getpid""".split())
RECORD = "tests/abi.json"


def structs():
    """{struct: [field, ...]} of the public headers."""
    found = {}
    for name in sorted(os.listdir("include/rankstore")):
        with open(os.path.join("include/rankstore", name), encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/|^#.*?$", "", file.read(), flags=re.S | re.M)
        for struct, body in re.findall(r"typedef struct (rks_\w+) \{(.*?)\} \1;", text, re.S):
            fields = []
            for declaration in filter(None, (part.strip() for part in body.split(";"))):
                pointer = re.search(r"\(\*(\w+)\)\s*\(", declaration)
                fields += [pointer[1]] if pointer else [re.search(r"(\w+)\s*(\[.*\])?$", one.strip())[1] for one in declaration.split(",")]
            found[struct] = fields
    return found


def layout_of(found):
    """{struct: {"sizeof": bytes, field: [offset, bytes]}}, as the compiler lays them out."""
    lines = [f'printf("{struct} {field} %zu %zu\\n", offsetof({struct}, {field}), sizeof((({struct} *)0)->{field}));'
             for struct, fields in found.items() for field in fields]
    lines += [f'printf("{struct} sizeof %zu 0\\n", sizeof({struct}));' for struct in found]
    with tempfile.TemporaryDirectory(prefix="rankstore-abi-") as work:
        source, program = os.path.join(work, "layout.c"), os.path.join(work, "layout")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <rankstore.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\n}\n")
        subprocess.run(["cc", source, "-Iinclude", "-o", program], check=True, timeout=600)
        printed = subprocess.run([program], check=True, capture_output=True, text=True, timeout=600).stdout
    layout = {}
    for struct, field, first, second in map(str.split, printed.splitlines()):
        layout.setdefault(struct, {})[field] = int(first) if field == "sizeof" else [int(first), int(second)]
    return layout


def symbols_of(library):
    printed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True, timeout=600).stdout
    return sorted(line.split()[-1] for line in printed.splitlines() if " T " in line or " D " in line)


def needed_by(binary):
    printed = subprocess.run(["nm", "-D", "--undefined-only", binary], check=True, capture_output=True, text=True, timeout=600).stdout
    return {line.split()[-1].partition("@")[0] for line in printed.splitlines()}


def lost(old, new):
    """What a program that was built before would miss."""
    yield from (f"{name} is gone" for name in old["symbols"] if name not in new["symbols"])
    for struct, fields in old["structs"].items():
        now = new["structs"].get(struct, {})
        for field, place in fields.items():
            if field == "sizeof":
                if now.get("sizeof", 0) < place or ("struct_size" not in fields and now["sizeof"] != place):
                    yield f"{struct} has {now.get('sizeof', 0)} bytes, not {place}"
            elif field != "reserved" and now.get(field) != place:
                yield f"{struct}.{field} was at {place}, is at {now.get(field, 'no place')}"


def main():
    new = {"symbols": symbols_of(os.path.join(os.path.abspath(sys.argv[1]), "src", "librankstore.so")), "structs": layout_of(structs())}
    with open(RECORD, encoding="utf-8") as file:
        old = json.load(file)
    problems = list(lost(old, new))
    print(f"FAIL what_programs_rely_on_is_there: {'; '.join(problems)}" if problems else "ok what_programs_rely_on_is_there")
    if not problems and os.environ.get("UPDATE"):
        with open(RECORD, "w", encoding="utf-8") as file:
            file.write(json.dumps(new, sort_keys=True).replace("}, ", "},\n").replace('", "', '",\n"') + "\n")
        old = new
    print("ok what_is_new_is_listed" if old == new or problems
          else f"FAIL what_is_new_is_listed: UPDATE=1 python3 tests/abi.py {sys.argv[1]}")
    newer = [f"{name} ({file})" for file in ("src/librankstore.so", "tools/rankstore/rankstore")
             for name in sorted(needed_by(os.path.join(sys.argv[1], file)) & AFTER_2_28)]
    print(f"FAIL what_is_called_is_in_the_wheels_glibc: {', '.join(newer)}" if newer else "ok what_is_called_is_in_the_wheels_glibc")
    smaller = {"symbols": new["symbols"][1:], "structs": {**new["structs"], "rks_array": {**new["structs"]["rks_array"], "sizeof": 1}}}
    print("ok a_loss_is_found" if len(list(lost(new, smaller))) == 2 else "FAIL a_loss_is_found")


if __name__ == "__main__":
    main()
