// SPDX-License-Identifier: Apache-2.0
//
// simdjson.cc: simdjson's DOM parser and its check of UTF-8, whose code is chosen at run time for
// the processor.
//
// Built without exceptions and run-time types; allocation is checked. The room grows by doubling,
// so that lines of growing size do not allocate each time, and shrinks after a very long line.
#include "base/simdjson.h"

#include <new>

#include <simdjson.h>

struct rks_simdjson {
    simdjson::dom::parser parser;
};

namespace
{

const size_t DEPTH = 2048;
const size_t SMALLEST = 1 << 10, LARGE = 4 << 20;

// Room for `size` bytes of text.
bool provide(simdjson::dom::parser &parser, size_t size)
{
    size_t room = parser.capacity();
    if (room >= size && !(room > LARGE && size < room / 16))
        return true;
    size_t wanted = SMALLEST;
    while (wanted < size)
        wanted += wanted < LARGE ? wanted : wanted / 4; // a parser takes 13 times the text
    if (wanted > simdjson::SIMDJSON_MAXSIZE_BYTES)
        wanted = simdjson::SIMDJSON_MAXSIZE_BYTES;
    return parser.allocate(wanted, DEPTH) == simdjson::SUCCESS &&
           parser.doc.allocate(wanted) == simdjson::SUCCESS;
}

} // namespace

static_assert(RKS_SIMDJSON_PADDING >= simdjson::SIMDJSON_PADDING, "room after a text");

rks_simdjson *rks_simdjson_create(void)
{
    return new (std::nothrow) rks_simdjson;
}

void rks_simdjson_free(rks_simdjson *parser)
{
    delete parser;
}

rks_simdjson_result rks_simdjson_parse(rks_simdjson *parser, const uint8_t *text, size_t size,
                                       uint64_t **tape, const uint8_t **strings, const char **why)
{
    simdjson::error_code code = simdjson::MEMALLOC;
    if (provide(parser->parser, size))
        code = parser->parser.parse(text, size, false).error();
    *why = simdjson::error_message(code);
    if (code == simdjson::MEMALLOC)
        return RKS_SIMDJSON_NO_MEMORY;
    if (code != simdjson::SUCCESS)
        return RKS_SIMDJSON_REFUSED;
    *tape = parser->parser.doc.tape.get();
    *strings = parser->parser.doc.string_buf.get();
    return RKS_SIMDJSON_OK;
}

bool rks_simdjson_utf8(const void *text, size_t size)
{
    return simdjson::validate_utf8(static_cast<const char *>(text), size);
}

const char *rks_simdjson_version(void)
{
    return SIMDJSON_STRINGIFY(SIMDJSON_VERSION);
}
