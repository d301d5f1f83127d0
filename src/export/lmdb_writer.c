/* SPDX-License-Identifier: Apache-2.0
 *
 * lmdb_writer.c: writes an LMDB environment with one record a sample. */
#include <errno.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "export/export.h"
#include "shard/lmdb_env.h"

enum { COMMIT_EACH = 64 << 20 };

typedef struct records {
    const rks_export_job *job;
    rks_lmdb *env;
    rks_buffer value;
} records;

static void records_close(void *state)
{
    records *r = state;
    if (r == NULL)
        return;
    rks_lmdb_close(r->env);
    rks_buffer_free(&r->value);
    rks_free(r);
}

/* Refuses a column whose shape its bytes alone do not show: more than one variable dimension. */
static rks_status check_lmdb_columns(const rks_export_job *job, rks_error *err)
{
    const rks_column *alone =
        job->column_count == 1 ? rks_schema_column(job->schema, job->columns[0]) : NULL;
    return alone == NULL || alone->variable_dims < 2
               ? RKS_OK
               : rks_fail(err, RKS_ERR_DATA, 0,
                          "column \"%s\" (%s): its bytes alone do not tell its shape; export two "
                          "columns, which are written as JSON",
                          alone->name, alone->type);
}

static rks_status records_open(const rks_export_job *job, void **state, rks_error *err)
{
    records *r = rks_alloc(1, sizeof(*r), err);
    char *path = rks_format(err, "%s/data.mdb", job->path);
    rks_status status = r == NULL || path == NULL ? RKS_ERR_MEMORY : check_lmdb_columns(job, err);
    if (status == RKS_OK && mkdir(job->path, 0777) != 0)
        status = rks_fail_write(err, errno, job->path, 0);
    if (status == RKS_OK)
        status = rks_lmdb_open_plain(path, &r->env, err);
    rks_free(path);
    if (status != RKS_OK) {
        records_close(r);
        return status;
    }
    r->job = job;
    *state = r;
    return RKS_OK;
}

static rks_status records_add(void *state, const rks_sample *sample, rks_error *err)
{
    records *r = state;
    const rks_value *alone = r->job->column_count == 1 ? &sample->values[r->job->columns[0]] : NULL;
    r->value.size = 0;
    if (alone != NULL && alone->data == NULL)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "column \"%s\" is missing, which a record that is its bytes cannot say; "
                        "export two columns, or leave it out by where",
                        rks_schema_name(r->job->schema, r->job->columns[0]));
    rks_status status = alone != NULL ? RKS_OK : rks_export_object(r->job, sample, &r->value, err);
    if (status == RKS_OK)
        status = rks_lmdb_put(
            r->env, RKS_LMDB_PLAIN,
            &(rks_lmdb_entry){.key = sample->key,
                              .key_size = sample->key_size,
                              .value = alone != NULL ? alone->data : r->value.data,
                              .size = alone != NULL ? (size_t)alone->size : r->value.size},
            false, err);
    if (status == RKS_OK && rks_lmdb_pending(r->env) >= COMMIT_EACH)
        status = rks_lmdb_commit(r->env, err);
    return status;
}

static rks_status records_finish(void *state, rks_error *err)
{
    records *r = state;
    rks_status status = rks_lmdb_commit(r->env, err);
    if (status == RKS_OK)
        status = rks_lmdb_fill_file(r->env, err);
    return status;
}

const rks_export_ops rks_export_lmdb = {records_open, records_add, records_finish, records_close};
