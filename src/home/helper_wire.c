/* SPDX-License-Identifier: Apache-2.0
 *
 * helper_wire.c: lines between a rank and its helper. */
#include "home/helper_wire.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/secret.h"

enum { NUMBER_DIGITS = 19, SHORT_SECRET = 6 };

/* ---- lines of the helper --------------------------------------------------------------------- */

typedef struct words {
    const char *at, *end;
    bool good;
} words;

/* Takes the next word; the space after it, too. */
static size_t next_word(words *w, const char **word)
{
    const char *space = w->at == w->end ? NULL : memchr(w->at, ' ', (size_t)(w->end - w->at));
    const char *stop = space == NULL ? w->end : space;
    size_t size = (size_t)(stop - w->at);
    *word = w->at;
    w->good = w->good && size > 0;
    w->at = space == NULL ? w->end : space + 1;
    return size;
}

static uint64_t next_number(words *w)
{
    const char *word;
    size_t size = next_word(w, &word);
    uint64_t number = 0;
    w->good = w->good && size <= NUMBER_DIGITS;
    for (size_t i = 0; w->good && i < size; i++) {
        w->good = word[i] >= '0' && word[i] <= '9';
        number = number * 10 + (uint64_t)(word[i] - '0');
    }
    return w->good ? number : 0;
}

static void next_version(words *w, char version[RKS_HOME_VERSION])
{
    const char *word;
    size_t size = next_word(w, &word);
    w->good = w->good && size < RKS_HOME_VERSION;
    for (size_t i = 0; w->good && i < size; i++)
        w->good = word[i] > ' ' && word[i] < 0x7F;
    if (!w->good || (size == 1 && word[0] == '-'))
        return;
    memcpy(version, word, size);
    version[size] = '\0';
}

/* The rest of the line: a name, which must fit, or a text, which is cut. */
static void read_rest_of_line(words *w, char *to, size_t room, bool name)
{
    size_t size = (size_t)(w->end - w->at);
    w->good = w->good && (!name || (size > 0 && size < room));
    size = size < room ? size : room - 1;
    memcpy(to, w->at, size);
    to[size] = '\0';
    w->good = w->good && (!name || strlen(to) == size);
    for (size_t i = 0; i < size; i++)
        to[i] = to[i] == '\0' ? '?' : to[i];
    rks_text_clean(to);
}

static enum rks_home_kind next_kind(words *w, uint32_t *busy_ms)
{
    static const struct {
        const char *word;
        enum rks_home_kind kind;
    } kinds[] = {{"missing", RKS_HOME_MISSING},
                 {"changed", RKS_HOME_CHANGED},
                 {"denied", RKS_HOME_DENIED},
                 {"busy", RKS_HOME_BUSY}};
    enum { BUSY_DIGITS = 7 };
    const char *word;
    size_t size = next_word(w, &word);
    if (size > 5 && size <= 5 + BUSY_DIGITS && strncmp(word, "busy=", 5) == 0) {
        words number = {word + 5, word + size, true};
        *busy_ms = (uint32_t)next_number(&number);
        return RKS_HOME_BUSY;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strlen(kinds[i].word) == size && strncmp(kinds[i].word, word, size) == 0)
            return kinds[i].kind;
    return RKS_HOME_BROKEN;
}

static bool read_word(words *w, enum rks_helper_word *found)
{
    static const char *const all[] = {"ready", "bad", "at", "ok", "more", "item", "fail"};
    const char *word;
    size_t size = next_word(w, &word);
    for (size_t i = 0; w->good && i < sizeof(all) / sizeof(*all); i++)
        if (strlen(all[i]) == size && strncmp(all[i], word, size) == 0) {
            *found = (enum rks_helper_word)i;
            return true;
        }
    return false;
}

bool rks_helper_read_line(const char *bytes, size_t size, rks_helper_line *line)
{
    words w = {bytes, bytes + size, true};
    *line = (rks_helper_line){0};
    if (!read_word(&w, &line->word))
        return false;
    if (line->word == RKS_HELPER_READY)
        return next_number(&w) == 1 && w.good && w.at == w.end;
    if (line->word == RKS_HELPER_BAD) {
        read_rest_of_line(&w, line->text, sizeof(line->text), false);
        return w.good;
    }
    line->id = next_number(&w);
    switch (line->word) {
    case RKS_HELPER_AT:
        line->bytes = next_number(&w);
        break;
    case RKS_HELPER_OK:
        line->bytes = next_number(&w);
        next_version(&w, line->version);
        line->size = next_number(&w);
        break;
    case RKS_HELPER_ITEM:
        line->size = next_number(&w);
        line->age_s = next_number(&w);
        next_version(&w, line->version);
        read_rest_of_line(&w, line->name, sizeof(line->name), true);
        return w.good;
    case RKS_HELPER_FAIL:
        line->kind = next_kind(&w, &line->busy_ms);
        read_rest_of_line(&w, line->text, sizeof(line->text), false);
        return w.good;
    default:
        break;
    }
    return w.good && w.at == w.end;
}

/* ---- lines of the rank ----------------------------------------------------------------------- */

rks_status rks_helper_check_name(const char *name, rks_error *err)
{
    size_t size = strlen(name);
    bool good =
        size > 0 && size <= RKS_HELPER_NAME && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    for (size_t i = 0; good && i < size; i++)
        good = (unsigned char)name[i] >= ' ' && name[i] != 0x7F && name[i] != '/';
    return good ? RKS_OK
                : rks_fail(err, RKS_ERR_ARGUMENT, 0, "'%.60s' is not the name of a file there",
                           name);
}

rks_status rks_helper_check_object(const char *name, rks_error *err)
{
    size_t size = strlen(name);
    bool good = size > 0 && size <= RKS_OBJECT_NAME;
    for (size_t i = 0; good && i < size; i++)
        good = (unsigned char)name[i] >= ' ' && name[i] != 0x7F;
    return good ? RKS_OK
                : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                           "'%.60s' cannot be the name of an object: it has 1 to %d bytes, and no "
                           "control characters",
                           name, RKS_OBJECT_NAME);
}

const char *rks_helper_version(const char *version)
{
    return version[0] == '\0' ? "-" : version;
}

rks_status rks_helper_write_home(rks_buffer *to, const char *url, const char *options, bool inputs,
                                 rks_error *err)
{
    json_error_t why;
    json_t *given = options == NULL ? json_object() : json_loads(options, 0, &why);
    if (options != NULL && !json_is_object(given)) {
        json_decref(given);
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: storage_options: not a JSON object", url);
    }
    json_t *both = json_pack("{s:s, s:o}", "url", url, "options", given);
    if (inputs)
        json_object_set_new(both, "inputs", json_true());
    char *text = both == NULL ? NULL : json_dumps(both, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(both);
    if (text == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a home's URL is not UTF-8");
    rks_status status = rks_buffer_print(to, err, "home 1 %ld %s\n", (long)getpid(), text);
    rks_wipe(text, strlen(text));
    free(text);
    return status;
}

static void hide_one(const char *secret, char *text)
{
    size_t size = strlen(secret);
    if (size < SHORT_SECRET)
        return;
    for (char *at = strstr(text, secret); at != NULL; at = strstr(at, secret)) {
        memcpy(at, "***", 3);
        memmove(at + 3, at + size, strlen(at + size) + 1);
        at += 3;
    }
}

static bool is_secret(const char *name)
{
    static const char *const parts[] = {"secret", "token", "pass", "key", "sas", "cred", "auth"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (strcasestr(name, parts[i]) != NULL)
            return true;
    return false;
}

/* `all`: under a name that says so. */
static void hide_in(const json_t *value, bool all, char *text)
{
    const char *name;
    const json_t *item;
    size_t index;
    if (all && json_is_string(value))
        hide_one(json_string_value(value), text);
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
        hide_in(item, all || is_secret(name), text);
    json_array_foreach(value, index, item) hide_in(item, all, text);
}

void rks_helper_hide(const char *options, char *text)
{
    json_error_t why;
    json_t *given = options == NULL ? NULL : json_loads(options, 0, &why);
    if (options != NULL && given == NULL)
        text[0] = '\0'; /* memory is short, so nobody knows what is a secret */
    hide_in(given, false, text);
    json_decref(given);
}
