/* SPDX-License-Identifier: Apache-2.0
 *
 * test_unit.c: sources to files, files to units, units to ranks, and the lines in them. */
#include "scratch.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "base/file.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "codec/input_file.h"
#include "ingest/lines.h"
#include "ingest/stored.h"

static rks_error err;

static rks_status open_input(const char *const *sources, size_t count, const char *format,
                             uint64_t unit_size, rks_input **input)
{
    rks_ingest_options options = {0};
    options.format = format;
    options.unit_size = unit_size;
    return rks_input_open(sources, count, &options, input, &err);
}

static rks_input *must_open(const char *source, const char *format, uint64_t unit_size)
{
    rks_input *input = NULL;
    assert_ok(open_input(&source, 1, format, unit_size, &input), &err);
    return input;
}

/* Reads all units in order; each line is checked against the next one of `lines`. */
static void check_cut(const rks_input *input, char **lines, const size_t *sizes, size_t count)
{
    size_t next = 0;
    for (size_t u = 0; u < input->unit_count; u++) {
        const rks_input_unit *unit = &input->units[u];
        rks_lines reader;
        uint64_t rows = 0, counted = 0;
        assert_ok(rks_lines_open(&reader, &input->files[unit->first_file], unit->offset, unit->size,
                                 1 << 20, &err),
                  &err);
        for (;;) {
            rks_line line;
            assert_ok(rks_lines_next(&reader, &line, &err), &err);
            if (line.text == NULL)
                break;
            assert_true(next < count);
            assert_int_equal(line.size, sizes[next]);
            assert_memory_equal(line.text, lines[next], sizes[next]);
            next++;
            rows++;
        }
        rks_lines_close(&reader);
        assert_ok(rks_unit_count_rows(input, u, &counted, &err), &err);
        assert_int_equal(counted, rows);
    }
    assert_int_equal(next, count);
}

static void every_line_is_in_exactly_one_unit_for_any_unit_size(void **state)
{
    (void)state;
    scratch_seed_print();
    for (int round = 0; round < 60; round++) {
        char text[2048];
        char *lines[256];
        size_t sizes[256], size = 0, count = 0;
        size_t target = scratch_random(200);
        bool crlf = scratch_random(2) == 1;
        if (scratch_random(3) == 0) {
            memcpy(text, "\xef\xbb\xbf", 3);
            size = 3;
        }
        while (count < target) {
            sizes[count] = scratch_random(3) == 0 ? 0 : scratch_random(9);
            lines[count] = text + size;
            memset(text + size, 'a' + (int)(count % 26), sizes[count]);
            size += sizes[count++];
            if (crlf && scratch_random(2) == 0)
                text[size++] = '\r';
            text[size++] = '\n';
        }
        if (count > 0 && scratch_random(2) == 0) {
            size--; /* the last one goes without; what it ended, if empty, is no line then */
            if (sizes[count - 1] == 0 && (size == 0 || text[size - 1] == '\n'))
                count--;
        }
        const char *path = scratch_bytes("cut.txt", text, size);
        for (uint64_t unit_size = 1; unit_size < size + 2;
             unit_size += unit_size < 20 ? 1 : 1 + scratch_random(size)) {
            rks_input *input = must_open(path, NULL, unit_size);
            assert_int_equal(input->unit_count, (size + unit_size - 1) / unit_size);
            if (size != 3 || count > 0)
                check_cut(input, lines, sizes, count);
            rks_input_free(input);
        }
    }
}

static void lines_longer_than_every_buffer_are_whole_up_to_the_limit(void **state)
{
    (void)state;
    size_t size = 3 << 20;
    char *text = malloc(size + 8);
    memset(text, 'x', size);
    memcpy(text + size, "\r\nend\n", 6);
    const char *path = scratch_bytes("long.txt", text, size + 6);
    rks_input *input = must_open(path, NULL, 0);
    const size_t limits[] = {size, size - 1, 100};
    for (size_t i = 0; i < 3; i++) {
        rks_lines reader;
        rks_line line;
        assert_ok(rks_lines_open(&reader, input->files, 0, size + 6, limits[i], &err), &err);
        assert_ok(rks_lines_next(&reader, &line, &err), &err);
        assert_int_equal(line.too_long, i > 0);
        if (i == 0)
            assert_int_equal(line.size, size);
        if (i == 0)
            assert_memory_equal(line.text, text, size);
        assert_true(reader.window.room <= (i == 2 ? 1u << 20 : 8u << 20));
        assert_ok(rks_lines_next(&reader, &line, &err), &err);
        assert_int_equal(line.size, 3);
        assert_memory_equal(line.text, "end", 3);
        rks_lines_close(&reader);
    }
    rks_input_free(input);
    free(text);
}

static void bytes_lie_in_a_window_as_in_the_file_s_pages(void **state)
{
    (void)state;
    scratch_seed_print();
    size_t size = 5 << 20;
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = (char)scratch_random(256);
    const char *path = scratch_bytes("window.txt", text, size);
    rks_input *input = must_open(path, "text", 0);
    for (int round = 0; round < 20; round++) {
        rks_window window;
        size_t at = scratch_random(size), most = round % 2 == 0 ? 1 << 12 : 1 << 20;
        assert_ok(rks_window_open(&window, input->files, at, size - at, &err), &err);
        while (!window.ended) {
            assert_ok(rks_window_fill(&window, &err), &err);
            size_t filled = window.filled - window.begin, passed = scratch_random(most);
            assert_true(window.filled <= window.room);
            assert_memory_equal(window.data + window.begin, text + at, filled);
            assert_int_equal((uintptr_t)(window.data + window.begin) % RKS_FILE_PAGE,
                             at % RKS_FILE_PAGE);
            passed = passed < filled ? passed : filled;
            rks_window_pass(&window, passed);
            at += passed;
            assert_int_equal(window.position, at);
        }
        rks_window_close(&window);
    }
    rks_input_free(input);
    free(text);
}

static void behind_its_range_a_window_reads_little(void **state)
{
    (void)state;
    size_t size = 4 << 20, at = 1 << 20, wanted = (1 << 20) + 1000;
    char *text = calloc(1, size);
    rks_input *input = must_open(scratch_bytes("range.txt", text, size), "text", 0);
    rks_window window;
    assert_ok(rks_window_open(&window, input->files, at, wanted, &err), &err);
    while (window.read_to < at + wanted) {
        assert_ok(rks_window_fill(&window, &err), &err);
        rks_window_pass(&window, window.filled - window.begin);
    }
    assert_true(window.read_to <= at + wanted + RKS_WINDOW_OVERLAP);
    rks_window_close(&window);
    rks_input_free(input);
    free(text);
}

static void a_file_that_changes_is_named(void **state)
{
    (void)state;
    const char *path = scratch_file("change.txt", "one\ntwo\n");
    rks_input *input = must_open(path, NULL, 0);
    rks_lines reader;
    rks_line line;
    assert_ok(rks_lines_open(&reader, input->files, 0, 8, 100, &err), &err);
    assert_ok(rks_lines_next(&reader, &line, &err), &err);
    assert_ok(rks_lines_next(&reader, &line, &err), &err);
    scratch_file("change.txt", "one\ntwo\nthree\n");
    assert_fails(RKS_ERR_DATA, rks_lines_next(&reader, &line, &err));
    assert_contains(err.text, "change.txt: changed during the build: 8 bytes at first, now 14");
    rks_lines_close(&reader);
    scratch_file("change.txt", "one");
    uint64_t rows = 0;
    assert_fails(RKS_ERR_DATA, rks_unit_count_rows(input, 0, &rows, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_unit_count_rows(input, 1, &rows, &err));
    unlink(path);
    assert_fails(RKS_ERR_NOT_FOUND, rks_unit_count_rows(input, 0, &rows, &err));
    rks_input_free(input);
}

static void an_empty_file_has_no_units(void **state)
{
    (void)state;
    rks_input *input = must_open(scratch_file("empty.jsonl", ""), NULL, 0);
    assert_int_equal(input->file_count, 1);
    assert_int_equal(input->unit_count, 0);
    rks_input_free(input);
}

static void formats_are_told_by_name_then_by_content(void **state)
{
    (void)state;
    const struct {
        const char *name, *text;
        const rks_input_format *format;
    } cases[] = {
        {"a.jsonl", "plain", &rks_format_jsonl},
        {"a.ndjson", "", &rks_format_jsonl},
        {"a.JSON", "x", &rks_format_jsonl},
        {"a.txt", "{}", &rks_format_text},
        {"a", "  \n\t{\"a\": 1}", &rks_format_jsonl},
        {"b", "\xef\xbb\xbf{\"a\": 1}", &rks_format_jsonl},
        {"c", "na\xc3\xafve", &rks_format_text},
        {"d", "", &rks_format_text},
        {"e", "  ", &rks_format_text},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_input *input = must_open(scratch_file(cases[i].name, cases[i].text), NULL, 0);
        if (input->format != cases[i].format)
            fail_msg("%s: %s", cases[i].name, input->format->name);
        rks_input_free(input);
    }
    rks_input *input = NULL;
    const char *odd = scratch_file("odd.dat", "\xff\xfd");
    assert_fails(RKS_ERR_DATA, open_input(&odd, 1, NULL, 0, &input));
    assert_contains(err.text, "odd.dat: neither JSON nor UTF-8 text");
    assert_contains(err.text, "give format");
    odd = scratch_file("odd.dat", "\xff\xfe");
    assert_fails(RKS_ERR_DATA, open_input(&odd, 1, NULL, 0, &input));
    assert_contains(err.text, "odd.dat: is UTF-16; convert it");
    odd = scratch_bytes("nul", "a\0b", 3);
    assert_fails(RKS_ERR_DATA, open_input(&odd, 1, NULL, 0, &input));
    const char *two[] = {scratch_file("m.txt", "a"), scratch_file("m.jsonl", "{}")};
    assert_fails(RKS_ERR_DATA, open_input(two, 2, NULL, 0, &input));
    assert_contains(err.text, "m.jsonl is jsonl and");
    assert_fails(RKS_ERR_ARGUMENT, open_input(two, 2, "xml", 0, &input));
    assert_contains(err.text, "\"xml\"");
    assert_null(input);
    assert_ok(open_input(two, 2, "text", 0, &input), &err);
    assert_int_equal(input->unit_count, 2);
    rks_input_free(input);
}

static void a_character_cut_by_the_first_look_is_text(void **state)
{
    (void)state;
    size_t size = (64 << 10) + 2;
    char *text = malloc(size);
    memset(text, 'a', size);
    memcpy(text + (64 << 10) - 1, "\xe2\x82\xac", 3);
    rks_input *input = must_open(scratch_bytes("euro", text, size), NULL, 0);
    assert_ptr_equal(input->format, &rks_format_text);
    rks_input_free(input);
    free(text);
}

static void a_folder_is_walked_in_order_without_hidden_names(void **state)
{
    (void)state;
    const char *names[] = {"w/b", "w/a/z", "w/a/y", "w/a.b", "w/.hidden", "w/.git/x", "w/ü"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        scratch_file(names[i], "1234");
    assert_int_equal(symlink("../b", scratch_path("w/a/link")), 0);
    assert_int_equal(symlink("..", scratch_path("w/a/up")), 0);
    assert_int_equal(mkfifo(scratch_path("w/fifo"), 0600), 0);
    const char *const expected[] = {"a.b", "a/link", "a/y", "a/z", "b", "ü"};
    rks_input *input = must_open(scratch_path("w"), NULL, 0);
    assert_ptr_equal(input->format, &rks_format_folder);
    assert_int_equal(input->file_count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(input->files[i].name, expected[i]);
    assert_int_equal(input->unit_count, 1);
    assert_int_equal(input->units[0].file_count, 6);
    assert_int_equal(input->units[0].size, 24);
    assert_int_equal(input->bytes, 24);
    rks_input_free(input);

    input = must_open(scratch_path("w"), "text", 0); /* each file line by line */
    assert_int_equal(input->unit_count, 6);
    rks_input_free(input);

    rks_ingest_options options = {0};
    input = must_open(scratch_path("w/"), "folder", 0);
    rks_input_options(input, &options);
    assert_string_equal(options.format, "folder");
    assert_string_equal(options.key, "path");
    options.key = "text";
    rks_input_options(input, &options);
    assert_string_equal(options.key, "text");
    rks_input_free(input);
}

static void links_that_lead_nowhere_are_named(void **state)
{
    (void)state;
    rks_input *input = NULL;
    mkdir(scratch_path("links"), 0777);
    assert_int_equal(symlink("self", scratch_path("links/self")), 0);
    const char *source = scratch_path("links");
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "links/self: a link that leads nowhere");
    source = scratch_path("links/self");
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
}

static void what_is_no_file_is_refused_without_waiting(void **state)
{
    (void)state;
    rks_input *input = NULL;
    alarm(600);
    const char *source = scratch_path("pipe");
    assert_int_equal(mkfifo(source, 0600), 0);
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "pipe: is a FIFO");
    source = "/dev/zero";
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "/dev/zero: is a character device");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", scratch_dir);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    source = address.sun_path;
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "is a socket");
    close(fd);
    source = scratch_path("nothing-here");
    assert_fails(RKS_ERR_NOT_FOUND, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "nothing-here");
    mkdir(scratch_path("hollow"), 0777);
    scratch_file("hollow/.hidden", "x");
    source = scratch_path("hollow");
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "hollow: no files in this folder");
    assert_fails(RKS_ERR_ARGUMENT, open_input(&source, 0, NULL, 0, &input));
    /* a FIFO that takes a file's place later */
    source = scratch_file("later.txt", "a");
    assert_ok(open_input(&source, 1, NULL, 0, &input), &err);
    unlink(source);
    assert_int_equal(mkfifo(source, 0600), 0);
    uint64_t rows;
    assert_fails(RKS_ERR_DATA, rks_unit_count_rows(input, 0, &rows, &err));
    rks_input_free(input);
    alarm(0);
}

static void equal_names_get_their_folder_in_front(void **state)
{
    (void)state;
    rks_input *input = NULL;
    scratch_file("n/one/x.txt", "1");
    scratch_file("n/two/x.txt", "2");
    scratch_file("n/two/y.txt", "2");
    const char *files[] = {scratch_path("n/two/x.txt"), scratch_path("n/one/x.txt"),
                           scratch_path("n/two/y.txt")};
    assert_ok(open_input(files, 3, NULL, 0, &input), &err);
    assert_string_equal(input->files[0].name, "one/x.txt");
    assert_string_equal(input->files[1].name, "two/x.txt");
    assert_string_equal(input->files[2].name, "y.txt"); /* clashes with nothing */
    rks_input_free(input);
    const char *folders[] = {scratch_path("n/two"), scratch_path("n/one/")};
    assert_ok(open_input(folders, 2, NULL, 0, &input), &err);
    assert_string_equal(input->files[0].name, "one/x.txt");
    assert_string_equal(input->files[2].name, "two/y.txt");
    rks_input_free(input);
    input = NULL;
    const char *same[] = {files[0], files[0]};
    assert_fails(RKS_ERR_ARGUMENT, open_input(same, 2, NULL, 0, &input));
    assert_contains(err.text, "\"two/x.txt\"");
    assert_null(input);
}

static void names_that_cannot_be_keys_are_refused(void **state)
{
    (void)state;
    rks_input *input = NULL;
    const char *source = scratch_file("bad\xff.txt", "1");
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "not UTF-8");
    char deep[600] = "deep";
    for (int i = 0; i < 5; i++)
        strcat(deep, "/0123456789012345678901234567890123456789012345678901234567890123456789"
                     "012345678901234567890123456789");
    char path[700];
    snprintf(path, sizeof(path), "%s/deep", scratch_dir);
    for (char *at = deep + 4; at != NULL; at = strchr(at + 1, '/')) {
        snprintf(path, sizeof(path), "%s/%.*s", scratch_dir, (int)(at - deep), deep);
        mkdir(path, 0777);
    }
    snprintf(path, sizeof(path), "%s/%s", scratch_dir, deep);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    source = scratch_path("deep");
    assert_fails(RKS_ERR_DATA, open_input(&source, 1, NULL, 0, &input));
    assert_contains(err.text, "at most 490");
}

static void small_files_are_grouped_by_size_and_number(void **state)
{
    (void)state;
    char name[32];
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof(name), "g/%02d", i);
        scratch_bytes(name, "0123456789", (size_t)(i % 11));
    }
    rks_input *input = must_open(scratch_path("g"), NULL, 25);
    size_t files = 0;
    for (size_t u = 0; u < input->unit_count; u++) {
        const rks_input_unit *unit = &input->units[u];
        uint64_t size = 0;
        assert_int_equal(unit->number, u);
        assert_int_equal(unit->first_file, files);
        for (size_t i = 0; i < unit->file_count; i++)
            size += input->files[unit->first_file + i].size;
        assert_int_equal(unit->size, size);
        assert_true(unit->file_count == 1 || size <= 25);
        files += unit->file_count;
        uint64_t rows = 0;
        assert_ok(rks_unit_count_rows(input, u, &rows, &err), &err);
        assert_int_equal(rows, unit->file_count);
    }
    assert_int_equal(files, 30);
    rks_input_free(input);
    input = must_open(scratch_path("g"), NULL, 1);
    assert_int_equal(input->unit_count, 27); /* an empty file goes along with the next */
    rks_input_free(input);
}

static void too_many_units_are_refused(void **state)
{
    (void)state;
    rks_input *input = NULL;
    const char *source = scratch_path("sparse.txt");
    FILE *file = fopen(source, "w");
    assert_int_equal(ftruncate(fileno(file), (off_t)1 << 40), 0);
    fclose(file);
    assert_fails(RKS_ERR_ARGUMENT, open_input(&source, 1, NULL, 1, &input));
    assert_contains(err.text, "unit_size: 1 bytes");
    assert_ok(open_input(&source, 1, NULL, 0, &input), &err);
    assert_int_equal(input->unit_count, 16384);
    rks_input_free(input);
}

static void the_digest_is_pinned_and_sees_every_change(void **state)
{
    (void)state;
    char text[RKS_DIGEST_TEXT];
    scratch_file("digest/a.jsonl", "{}\n{}\n");
    scratch_file("digest/b.jsonl", "{}\n");
    rks_input *input = must_open(scratch_path("digest"), "jsonl", 4);
    rks_digest first = rks_input_digest(input);
    rks_digest_format(first, text);
    assert_string_equal(text, "ec6ffff6a020f81fc821ac3831356206");
    rks_input_free(input);
    input = must_open(scratch_path("digest/."), "jsonl", 4); /* paths do not count */
    assert_true(rks_digest_equal(first, rks_input_digest(input)));
    rks_input_free(input);
    input = must_open(scratch_path("digest"), "jsonl", 5);
    assert_false(rks_digest_equal(first, rks_input_digest(input)));
    rks_input_free(input);
    input = must_open(scratch_path("digest"), "text", 4);
    assert_false(rks_digest_equal(first, rks_input_digest(input)));
    rks_input_free(input);
    rename(scratch_path("digest/b.jsonl"), scratch_path("digest/c.jsonl"));
    input = must_open(scratch_path("digest"), "jsonl", 4);
    assert_false(rks_digest_equal(first, rks_input_digest(input)));
    rks_input_free(input);
}

static void units_are_dealt_largest_first_to_the_least_loaded(void **state)
{
    (void)state;
    scratch_seed_print();
    for (int round = 0; round < 40; round++) {
        enum { UNITS = 300 };
        static rks_input_unit units[UNITS];
        uint32_t owners[UNITS], again[UNITS];
        bool done[UNITS];
        uint64_t loads[64] = {0}, total = 0, largest = 0;
        size_t count = 1 + scratch_random(UNITS);
        uint32_t ranks = (uint32_t)(1 + scratch_random(64));
        for (size_t i = 0; i < count; i++) {
            units[i] = (rks_input_unit){.number = i, .file_count = 1};
            units[i].size = scratch_random(4) == 0 ? 1 << 26 : scratch_random(1 << 26);
            done[i] = scratch_random(5) == 0;
        }
        rks_input input = {.units = units, .unit_count = count};
        assert_ok(rks_input_deal(&input, ranks, done, owners, &err), &err);
        assert_ok(rks_input_deal(&input, ranks, done, again, &err), &err);
        assert_memory_equal(owners, again, count * sizeof(owners[0]));
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(done[i], owners[i] == UINT32_MAX);
            if (done[i])
                continue;
            assert_true(owners[i] < ranks);
            uint64_t weight = units[i].size + 4096;
            loads[owners[i]] += weight;
            total += weight;
            largest = weight > largest ? weight : largest;
        }
        /* The greedy bound: nobody has more than the mean and one unit. */
        for (uint32_t r = 0; r < ranks; r++)
            assert_true(loads[r] <= total / ranks + largest);
    }
    rks_input none = {0};
    uint32_t owner;
    assert_fails(RKS_ERR_ARGUMENT, rks_input_deal(&none, 0, NULL, &owner, &err));
    assert_ok(rks_input_deal(&none, 3, NULL, &owner, &err), &err);
}

static void files_of_a_store_are_dealt_whole_if_none_is_large(void **state)
{
    (void)state;
    enum { FILES = 40, UNITS = 400 };
    static rks_input_file files[FILES];
    static rks_input_unit units[UNITS];
    rks_stores stores = {0};
    scratch_seed_print();
    for (int round = 0; round < 40; round++) {
        rks_input input = {.files = files, .units = units, .stores = &stores};
        uint32_t owners[UNITS], ranks = (uint32_t)(1 + scratch_random(12));
        bool done[UNITS], large = round % 4 == 0;
        uint64_t loads[12] = {0};
        input.file_count = 1 + scratch_random(FILES);
        for (size_t file = 0; file < input.file_count; file++) {
            size_t count = 1 + scratch_random(UNITS / FILES - 1);
            for (size_t i = 0; i < count; i++) {
                units[input.unit_count] = (rks_input_unit){
                    .first_file = file, .file_count = 1, .size = 1 << 20, .first_of_file = i == 0};
                done[input.unit_count++] = scratch_random(5) == 0;
            }
            files[file].size = count << (large && file == 0 ? 30 : 20);
            input.bytes += files[file].size;
        }
        assert_ok(rks_input_choose_deal(&input, ranks, &err), &err);
        assert_true(!large || ranks == 1 || !input.deals_files);
        for (size_t file = 0; input.deals_files && file < input.file_count; file++)
            assert_true(files[file].size <= input.bytes / ranks * 5 / 4);
        assert_ok(rks_input_deal(&input, ranks, round % 2 == 0 ? done : NULL, owners, &err), &err);
        uint32_t owner = UINT32_MAX; /* of the file */
        for (size_t i = 0; i < input.unit_count; i++) {
            owner = units[i].first_of_file ? UINT32_MAX : owner;
            assert_int_equal(round % 2 == 0 && done[i], owners[i] == UINT32_MAX);
            if (owners[i] == UINT32_MAX)
                continue;
            assert_true(owners[i] < ranks);
            assert_true(!input.deals_files || owner == UINT32_MAX || owner == owners[i]);
            owner = owners[i];
            loads[owner] += units[i].size;
        }
        for (uint32_t r = 0; input.deals_files && round % 2 == 1 && r < ranks; r++)
            assert_true(loads[r] <= input.bytes / ranks * 5 / 4 + (FILES << 12));
        input.stores = NULL;
        assert_ok(rks_input_choose_deal(&input, ranks, &err), &err);
        assert_false(input.deals_files);
    }
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "mem/%d/x", i);
        scratch_file(name, "{\"a\": 1}\n{}\n");
    }
    const char *sources[] = {scratch_path("mem/0"), scratch_path("mem/1"), scratch_path("mem/2/x")};
    long before = rks_memory_in_use();
    for (long nth = 1;; nth++) {
        assert_true(nth < 1000);
        rks_input *input = NULL;
        uint32_t owners[64];
        uint64_t rows = 0;
        rks_memory_fail_at(nth);
        rks_status status = open_input(sources, 3, "jsonl", 5, &input);
        if (status == RKS_OK)
            status = rks_input_deal(input, 3, NULL, owners, &err);
        if (status == RKS_OK)
            status = rks_unit_count_rows(input, 0, &rows, &err);
        rks_memory_fail_at(0);
        rks_input_free(input);
        assert_int_equal(rks_memory_in_use(), before);
        if (status == RKS_OK)
            break;
        assert_fails(RKS_ERR_MEMORY, status);
    }
}

static void files_are_loaded_as_long_as_they_were(void **state)
{
    (void)state;
    char content[2][2] = {"ab", "cd"};
    rks_buffer data = {0};
    rks_input_folder folder = {0};
    rks_input_file files[2] = {{.size = 2}, {.size = 2}};
    for (int i = 0; i < 2; i++)
        files[i].path =
            strdup(scratch_bytes(i == 0 ? "one/f" : "two/f", content[i], sizeof(content[i])));
    for (int i = 0; i < 6; i++) { /* in the folder at hand, and in another one */
        assert_ok(rks_input_file_load(&files[i / 2 % 2], &folder, &data, &err), &err);
        assert_int_equal(data.size, 2);
        assert_memory_equal(data.data, content[i / 2 % 2], 2);
    }
    const char *const says[] = {"now 3", "now 1", "not a regular file", "not a regular file",
                                "no such file"};
    for (int i = 0; i < 5; i++) {
        unlink(files[0].path);
        if (i < 2)
            scratch_bytes("one/f", "abc", i == 0 ? 3 : 1);
        else if (i == 2)
            assert_int_equal(mkfifo(files[0].path, 0600), 0);
        else if (i == 3)
            assert_int_equal(mkdir(files[0].path, 0700), 0);
        else
            assert_int_equal(rmdir(files[0].path), 0);
        assert_fails(i < 4 ? RKS_ERR_DATA : RKS_ERR_NOT_FOUND,
                     rks_input_file_load(&files[0], &folder, &data, &err));
        assert_contains(err.text, says[i]);
        assert_contains(err.text, files[0].path);
    }
    rks_input_folder_close(&folder);
    rks_buffer_free(&data);
    free(files[0].path);
    free(files[1].path);
    assert_int_equal(rks_memory_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_is_in_exactly_one_unit_for_any_unit_size),
        cmocka_unit_test(lines_longer_than_every_buffer_are_whole_up_to_the_limit),
        cmocka_unit_test(bytes_lie_in_a_window_as_in_the_file_s_pages),
        cmocka_unit_test(behind_its_range_a_window_reads_little),
        cmocka_unit_test(a_file_that_changes_is_named),
        cmocka_unit_test(an_empty_file_has_no_units),
        cmocka_unit_test(formats_are_told_by_name_then_by_content),
        cmocka_unit_test(a_character_cut_by_the_first_look_is_text),
        cmocka_unit_test(a_folder_is_walked_in_order_without_hidden_names),
        cmocka_unit_test(links_that_lead_nowhere_are_named),
        cmocka_unit_test(what_is_no_file_is_refused_without_waiting),
        cmocka_unit_test(equal_names_get_their_folder_in_front),
        cmocka_unit_test(names_that_cannot_be_keys_are_refused),
        cmocka_unit_test(small_files_are_grouped_by_size_and_number),
        cmocka_unit_test(too_many_units_are_refused),
        cmocka_unit_test(the_digest_is_pinned_and_sees_every_change),
        cmocka_unit_test(units_are_dealt_largest_first_to_the_least_loaded),
        cmocka_unit_test(files_of_a_store_are_dealt_whole_if_none_is_large),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(files_are_loaded_as_long_as_they_were),
    };
    return cmocka_run_group_tests_name("ingest_unit", tests, scratch_open, scratch_close);
}
