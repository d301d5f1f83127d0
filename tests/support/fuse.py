# SPDX-License-Identifier: Apache-2.0
"""A file system whose reads hang, fail and heal when a test says so: a directory, shown again through /dev/fuse (for root).

The kernel treats it as it treats storage behind a network: a page of a mapped file that does not come leaves its thread in the page
fault, where no signal handler runs. Every other answer comes at once. The test must not read the mount itself while it hangs."""
import ctypes
import errno
import os
import select
import struct
import threading

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 5, 14, 15, 17, 18, 25, 26
SETATTR, MKDIR, UNLINK, RENAME, LINK, WRITE, FSYNC, FSYNCDIR, CREATE, RENAME2 = 4, 9, 10, 12, 13, 16, 20, 30, 35, 45
OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = 27, 28, 29, 34, 36, 42
SILENT = FORGET, BATCH_FORGET, INTERRUPT
DETACH, INVALIDATE = 2, 2

libc = ctypes.CDLL(None, use_errno=True)


class NotHere(Exception):
    """This machine cannot do it."""


class Mount:
    """`source` shown at `target`. `hang` and `fail` name files by the end of their names; `heal()` answers what waits.

    kept_s: how long the kernel may keep names and attributes."""

    def __init__(self, source, target, kept_s=3600):
        self.source, self.target = source, target
        self.kept = struct.pack("<QI", kept_s, 0)
        self.hanging_at = (READ,)
        self.paths, self.numbers = {1: ""}, {"": 1}
        self.hanging, self.failing, self.waiting = (), (), []
        self.failing_bytes = (0, 1 << 62)
        self.reads = 0  # requests for files that hang or fail
        self.lock = threading.Lock()
        try:
            self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise NotHere(f"needs /dev/fuse: {error}") from None
        options = f"fd={self.device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
        os.makedirs(target, exist_ok=True)
        if libc.mount(b"rankstore-test", os.fsencode(target), b"fuse", 0, options.encode()) != 0:
            os.close(self.device)
            raise NotHere(f"needs to mount: {os.strerror(ctypes.get_errno())}")
        self.over = False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.heal()
        libc.umount2(os.fsencode(self.target), DETACH)
        self.over = True  # another mount namespace, made meanwhile, may keep the mount for long
        self.thread.join(60)

    def hang(self, *names, at=(READ,)):
        """From now on requests of these kinds for these files get no answer. What the kernel has of them is dropped."""
        self.drop(names)
        with self.lock:
            self.hanging, self.hanging_at = names, at

    def fail(self, *names, begin=0, end=1 << 62):
        """From now on reads of these files fail that touch bytes `begin` to `end`."""
        self.drop(names)
        with self.lock:
            self.failing, self.failing_bytes = names, (begin, end)

    def heal(self):
        with self.lock:
            self.hanging = self.failing = ()
            waiting, self.waiting = self.waiting, []
        for request in waiting:
            self._answer(*request)

    def drop(self, names):
        """Drops the pages of files, also where they are mapped."""
        for number, path in list(self.paths.items()):
            if path.endswith(names):
                os.write(self.device, struct.pack("<IiQQqq", 40, INVALIDATE, 0, number, 0, -1))

    # ---- the protocol --------------------------------------------------------------------------

    def _serve(self):
        ready = select.poll()
        ready.register(self.device, select.POLLIN)
        while not self.over:
            try:
                if not ready.poll(50):
                    continue
                message = os.read(self.device, 1 << 20)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                break  # unmounted
            opcode, unique, node = struct.unpack_from("<4xIQQ", message)
            if opcode not in SILENT:
                self._answer(opcode, unique, node, message[40:])
        os.close(self.device)

    def _answer(self, opcode, unique, node, body):
        error, out = 0, b""
        try:
            out = self._do(opcode, unique, node, body)
        except OSError as failure:
            error = failure.errno
        if out is None:
            return
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(out), -error, unique) + out)
        except OSError:
            pass  # the asker is gone

    def _do(self, opcode, unique, node, body):
        path = self.source + self.paths.get(node, "")
        asked = path + "/" + body.split(b"\0")[0].decode() if opcode in (LOOKUP, UNLINK) else path
        with self.lock:
            if self.hanging and opcode in self.hanging_at and asked.endswith(self.hanging):
                self.reads += 1
                self.waiting.append((opcode, unique, node, body))
                return None
        if opcode == INIT:
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 17, 1, 12, 9, 1 << 17, 1, 0, 0, 0)  # flags: reads side by side
        if opcode == LOOKUP:
            return self._entry(self.paths[node] + "/" + body.split(b"\0")[0].decode())
        if opcode == GETATTR:
            return self.kept + bytes(4) + self._attributes(os.stat(path, follow_symlinks=False))
        if opcode == READLINK:
            return os.fsencode(os.readlink(path))
        if opcode in (OPEN, OPENDIR):
            os.stat(path)
            return struct.pack("<QII", 0, 2, 0)  # pages stay from one open to the next
        if opcode == READ:
            return self._read(body, path)
        if opcode == READDIR:
            return self._list(path, *struct.unpack_from("<8xQI", body))
        if opcode == STATFS:
            of = os.statvfs(self.source)
            return struct.pack("<QQQQQIII28x", of.f_blocks, of.f_bfree, of.f_bavail, of.f_files, of.f_ffree, of.f_bsize, of.f_namemax,
                               of.f_frsize)
        if opcode in (RELEASE, RELEASEDIR, FLUSH, ACCESS, FSYNC, FSYNCDIR):
            return b""
        return self._change(opcode, path, self.paths.get(node, ""), body)

    def _change(self, opcode, path, shown, body):
        if opcode == WRITE:
            offset, size = struct.unpack_from("<8xQI", body)
            with open(path, "r+b") as file:
                os.pwrite(file.fileno(), body[40:40 + size], offset)
            return struct.pack("<I4x", size)
        if opcode == SETATTR:
            valid, size = struct.unpack_from("<I12xQ", body)
            if valid & 8:
                os.truncate(path, size)
            return self.kept + bytes(4) + self._attributes(os.stat(path, follow_symlinks=False))
        if opcode == CREATE:
            name = body[16:].split(b"\0")[0].decode()
            os.close(os.open(f"{path}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            return self._entry(f"{shown}/{name}") + struct.pack("<QII", 0, 2, 0)
        if opcode == MKDIR:
            name = body[8:].split(b"\0")[0].decode()
            os.mkdir(f"{path}/{name}")
            return self._entry(f"{shown}/{name}")
        if opcode == LINK:
            name = body[8:].split(b"\0")[0].decode()
            os.link(self.source + self.paths[struct.unpack_from("<Q", body)[0]], f"{path}/{name}")
            return self._entry(f"{shown}/{name}")
        if opcode == UNLINK:
            os.unlink(path + "/" + body.split(b"\0")[0].decode())
            return b""
        if opcode in (RENAME, RENAME2):
            old, new = body[8 if opcode == RENAME else 16:].split(b"\0")[:2]
            to = self.paths[struct.unpack_from("<Q", body)[0]]
            os.rename(f"{path}/{old.decode()}", f"{self.source}{to}/{new.decode()}")
            return b""
        raise OSError(errno.ENOSYS, "not here")

    def _read(self, body, path):
        offset, size = struct.unpack_from("<8xQI", body)
        with self.lock:
            if self.failing and path.endswith(self.failing) and offset < self.failing_bytes[1] and offset + size > self.failing_bytes[0]:
                self.reads += 1
                raise OSError(errno.EIO, "as the test wants it")
        with open(path, "rb") as file:
            return os.pread(file.fileno(), size, offset)

    def _entry(self, name):
        info = os.stat(self.source + name, follow_symlinks=False)
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        self.paths[number] = name
        return struct.pack("<QQ", number, 0) + self.kept[:8] + self.kept[:8] + bytes(8) + self._attributes(info)

    def _attributes(self, of):
        times = int(of.st_atime), int(of.st_mtime), int(of.st_ctime), 0, 0, 0
        return struct.pack("<QQQQQQIIIIIIIIII", of.st_ino, of.st_size, of.st_blocks, *times, of.st_mode, of.st_nlink, of.st_uid, of.st_gid,
                           0, of.st_blksize, 0)

    def _list(self, path, offset, size):
        out = b""
        names = [".", "..", *sorted(os.listdir(path))]
        for place, name in enumerate(names[offset:], offset + 1):
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", place, place, len(raw), 0) + raw
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out
