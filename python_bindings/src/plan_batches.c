/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_batches.c: methods of Plan that return steps, batches, bins and pieces. */
#include "handles.h"

#include <string.h>

PyObject *core_plan_steps(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    uint64_t epoch, steps = 0;
    rks_error err = {0};
    rks_status status;
    rks_plan *handle = core_plan_enter_epoch(object, arguments, keywords, "|O:steps", &epoch);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_steps(handle, epoch, &steps, &err);
    Py_END_ALLOW_THREADS
    core_plan_leave(object);
    return status == RKS_OK ? PyLong_FromUnsignedLongLong(steps) : core_raise(&err);
}

static PyObject *list_of(const uint32_t *ids, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *id = PyLong_FromUnsignedLong(ids[i]);
        if (id == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, id);
    }
    return list;
}

/* The place of a batch. */
typedef struct place {
    uint64_t epoch, step, rank;
} place;

/* Parses a place; `format` is "OOO:" and the method's name. */
static bool parse_place(PyObject *arguments, PyObject *keywords, const char *format, place *at)
{
    static char *names[] = {"epoch", "step", "rank", NULL};
    PyObject *epoch, *step, *rank;
    return PyArg_ParseTupleAndKeywords(arguments, keywords, format, names, &epoch, &step, &rank) &&
           core_number(epoch, "epoch", 0, UINT64_MAX, &at->epoch) &&
           core_number(step, "step", 0, UINT64_MAX, &at->step) &&
           core_number(rank, "rank", 0, UINT32_MAX, &at->rank);
}

PyObject *core_plan_batch(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    place at;
    const uint32_t *ids = NULL;
    size_t count = 0;
    rks_error err = {0};
    rks_status status;
    if (!parse_place(arguments, keywords, "OOO:batch", &at))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS /* the first question for an epoch computes it */
    status = rks_plan_batch(handle, at.epoch, at.step, (uint32_t)at.rank, &ids, &count, &err);
    Py_END_ALLOW_THREADS
    PyObject *list = status == RKS_OK ? list_of(ids, count) : core_raise(&err);
    core_plan_leave(object);
    return list;
}

/* Returns the bounds as int64, starting with 0. */
PyObject *core_plan_bins(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    place at;
    const uint32_t *bounds = NULL;
    size_t bins = 0;
    rks_error err = {0};
    rks_status status;
    if (!parse_place(arguments, keywords, "OOO:bins", &at))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS /* the first question for an epoch computes it */
    status = rks_plan_bins(handle, at.epoch, at.step, (uint32_t)at.rank, &bounds, &bins, &err);
    Py_END_ALLOW_THREADS
    PyObject *bytes =
        status == RKS_OK ? core_bytes((bins + 1) * sizeof(int64_t)) : core_raise(&err);
    if (bytes != NULL) {
        int64_t *list = (int64_t *)(void *)PyBytes_AsString(bytes);
        for (size_t i = 0; i <= bins; i++)
            list[i] = bounds[i] - bounds[0];
    }
    core_plan_leave(object);
    return bytes;
}

/* A range of batches: steps [first, last) of ranks [rank, rank_end), step-major. */
typedef struct range {
    uint64_t epoch, first, last;
    uint32_t rank, rank_end;
} range;

/* Writes the offset of each batch, and their ids if `ids` is not NULL. */
static rks_status copy_batches(rks_plan *handle, const range *r, int64_t *indptr, uint32_t *ids,
                               rks_error *err)
{
    uint64_t total = 0;
    *indptr = 0;
    for (uint64_t step = r->first; step < r->last; step++)
        for (uint32_t rank = r->rank; rank < r->rank_end; rank++) {
            const uint32_t *batch = NULL;
            size_t count = 0;
            rks_status status = rks_plan_batch(handle, r->epoch, step, rank, &batch, &count, err);
            if (status != RKS_OK)
                return status;
            if (ids != NULL)
                memcpy(ids + total, batch, count * sizeof(*ids));
            total += count;
            *++indptr = (int64_t)total;
        }
    return RKS_OK;
}

/* Counts the batches, then copies them. `last` may be UINT64_MAX for the epoch's end. */
static PyObject *batches_of(rks_plan *handle, range *r)
{
    uint64_t steps = 0;
    rks_error err = {0};
    rks_status status;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_steps(handle, r->epoch, &steps, &err);
    Py_END_ALLOW_THREADS
    if (status != RKS_OK)
        return core_raise(&err);
    if (r->last == UINT64_MAX)
        r->last = steps;
    if (r->first > r->last || r->last > steps)
        return core_raise_text(RKS_ERR_ARGUMENT, "steps %llu..%llu: epoch %llu has %llu",
                               (unsigned long long)r->first, (unsigned long long)r->last,
                               (unsigned long long)r->epoch, (unsigned long long)steps);
    size_t count = (size_t)(r->last - r->first) * (r->rank_end - r->rank);
    PyObject *indptr = core_bytes((count + 1) * sizeof(int64_t));
    if (indptr == NULL)
        return NULL;
    int64_t *offsets = (int64_t *)(void *)PyBytes_AsString(indptr);
    Py_BEGIN_ALLOW_THREADS
    status = copy_batches(handle, r, offsets, NULL, &err);
    Py_END_ALLOW_THREADS
    PyObject *ids =
        status == RKS_OK ? core_bytes((size_t)offsets[count] * sizeof(uint32_t)) : core_raise(&err);
    if (ids == NULL) {
        Py_DECREF(indptr);
        return NULL;
    }
    uint32_t *items = (uint32_t *)(void *)PyBytes_AsString(ids);
    Py_BEGIN_ALLOW_THREADS
    status = copy_batches(handle, r, offsets, items, &err); /* cannot fail: the epoch exists */
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(NN)", indptr, ids);
}

/* Parses a range; `format` is "Oi|OO:" and the method's name. Returns false with an exception. */
static bool parse_range(PyObject *plan, PyObject *arguments, PyObject *keywords, const char *format,
                        range *r)
{
    static char *names[] = {"epoch", "rank", "first", "last", NULL};
    PyObject *epoch, *first = NULL, *last = NULL;
    int rank;
    uint32_t world = core_plan_world(plan);
    *r = (range){.last = UINT64_MAX};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, format, names, &epoch, &rank, &first,
                                     &last) ||
        !core_number(epoch, "epoch", 0, UINT64_MAX, &r->epoch) ||
        !core_number(first, "first", 0, UINT64_MAX, &r->first) ||
        !core_number(last, "last", 0, UINT64_MAX - 1, &r->last))
        return false;
    if (rank < -1 || (rank >= 0 && (uint32_t)rank >= world)) {
        core_raise_text(RKS_ERR_ARGUMENT, "rank %d of a plan for %u ranks", rank, (unsigned)world);
        return false;
    }
    r->rank = rank < 0 ? 0 : (uint32_t)rank;
    r->rank_end = rank < 0 ? world : r->rank + 1;
    return true;
}

/* Counts the pieces of a range; writes them if `list` is not NULL, with places counted over all of
 * its batches. */
static rks_status copy_pieces(rks_plan *handle, const range *r, rks_piece *list, size_t *total,
                              rks_error *err)
{
    uint64_t samples = 0;
    rks_status status = RKS_OK;
    *total = 0;
    for (uint64_t step = r->first; step < r->last; step++)
        for (uint32_t rank = r->rank; rank < r->rank_end; rank++) {
            const uint32_t *ids = NULL;
            const rks_piece *pieces = NULL;
            size_t count = 0, more = 0;
            status = rks_plan_batch(handle, r->epoch, step, rank, &ids, &count, err);
            if (status == RKS_OK)
                status = rks_plan_pieces(handle, r->epoch, step, rank, &pieces, &more, err);
            if (status != RKS_OK)
                return status;
            for (size_t i = 0; list != NULL && i < more; i++) {
                list[*total + i] = pieces[i];
                list[*total + i].place += (uint32_t)samples;
            }
            samples += count;
            *total += more;
        }
    return RKS_OK;
}

PyObject *core_plan_pieces(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    range r;
    size_t count = 0;
    uint64_t steps = 0;
    PyObject *bytes = NULL;
    rks_error err = {0};
    rks_status status;
    if (!parse_range(object, arguments, keywords, "Oi|OO:pieces", &r))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_steps(handle, r.epoch, &steps, &err);
    r.last = r.last == UINT64_MAX ? steps : r.last;
    if (status == RKS_OK)
        status = copy_pieces(handle, &r, NULL, &count, &err);
    Py_END_ALLOW_THREADS
    bytes = status == RKS_OK ? core_bytes(count * sizeof(rks_piece)) : core_raise(&err);
    if (bytes != NULL) /* cannot fail: the epoch exists */
        (void)copy_pieces(handle, &r, (rks_piece *)(void *)PyBytes_AsString(bytes), &count, &err);
    core_plan_leave(object);
    return bytes;
}

PyObject *core_plan_batches(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    range r;
    if (!parse_range(object, arguments, keywords, "Oi|OO:batches", &r))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    PyObject *both = batches_of(handle, &r);
    core_plan_leave(object);
    return both;
}
