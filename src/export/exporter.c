/* SPDX-License-Identifier: Apache-2.0
 *
 * exporter.c: calls the format's functions. */
#include "base/memory.h"
#include "export/export.h"

struct rks_exporter {
    const rks_export_ops *ops;
    void *state;
};

static const rks_export_ops *const formats[] = {
    [RKS_EXPORT_JSONL] = &rks_export_jsonl, [RKS_EXPORT_TAR] = &rks_export_members,
    [RKS_EXPORT_NPZ] = &rks_export_npz,     [RKS_EXPORT_DIR] = &rks_export_members,
    [RKS_EXPORT_LMDB] = &rks_export_lmdb,
};

rks_status rks_exporter_open(const rks_export_job *job, rks_exporter **exporter, rks_error *err)
{
    rks_exporter *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->ops = formats[job->format];
    rks_status status = opened->ops->open(job, &opened->state, err);
    if (status != RKS_OK) {
        rks_exporter_close(opened);
        return status;
    }
    *exporter = opened;
    return RKS_OK;
}

rks_status rks_exporter_add(rks_exporter *exporter, const rks_sample *sample, rks_error *err)
{
    return exporter->ops->add(exporter->state, sample, err);
}

rks_status rks_exporter_finish(rks_exporter *exporter, rks_error *err)
{
    return exporter->ops->finish(exporter->state, err);
}

void rks_exporter_close(rks_exporter *exporter)
{
    if (exporter == NULL)
        return;
    exporter->ops->close(exporter->state);
    rks_free(exporter);
}
