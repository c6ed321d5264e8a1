/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/safetensors.h"
#include "scheduler/lstm.h"

static bool copy_tensor(const struct safetensors *file, const char *name, uint64_t rows,
                        uint64_t columns, float *to, struct err *err)
{
    const struct tensor *tensor = safetensors_find(file, name);
    uint32_t dims = columns ? 2 : 1;

    if (!tensor)
        return err_set(err, ERR_REJECT, "predictor %s: no tensor %s", safetensors_path(file), name);
    if (tensor->dtype != TENSOR_F32 || tensor->dim_count != dims || tensor->dims[0] != rows ||
        (dims == 2 && tensor->dims[1] != columns))
        return err_set(err, ERR_REJECT,
                       "predictor %s: tensor %s is no F32 of (%llu, %llu), as ops/train-predictor "
                       "writes it",
                       safetensors_path(file), name, (unsigned long long)rows,
                       (unsigned long long)columns);
    memcpy(to, tensor->data, tensor->size);
    return true;
}

static bool copy_all(struct lstm *lstm, const struct safetensors *file, struct err *err)
{
    const struct tensor *bias = safetensors_find(file, "bias");
    uint64_t gates = bias && bias->dim_count == 1 ? bias->dims[0] : 0;

    if (gates == 0 || gates % 4 != 0 || gates > 4 * LSTM_HIDDEN_MAX)
        return err_set(err, ERR_REJECT,
                       "predictor %s: tensor bias has no 4 to %d numbers, four a hidden unit",
                       safetensors_path(file), 4 * LSTM_HIDDEN_MAX);
    lstm->hidden = (uint32_t)gates / 4;
    return copy_tensor(file, "bias", gates, 0, lstm->bias, err) &&
           copy_tensor(file, "weight_ih", gates, 1, lstm->weight_ih, err) &&
           copy_tensor(file, "weight_hh", gates, lstm->hidden, lstm->weight_hh, err) &&
           copy_tensor(file, "head.weight", LSTM_HORIZONS, lstm->hidden, lstm->head_weight, err) &&
           copy_tensor(file, "head.bias", LSTM_HORIZONS, 0, lstm->head_bias, err);
}

bool lstm_read(struct lstm *lstm, const char *path, struct err *err)
{
    size_t size = strlen(path);
    struct safetensors *file;
    bool ok;

    if (size > 4 && strcmp(path + size - 4, ".pth") == 0)
        return err_set(err, ERR_REJECT,
                       "predictor %s: a pickle may run code; convert it with ops/train-predictor "
                       "--convert %s OUT.safetensors",
                       path, path);
    *lstm = (struct lstm){0};
    if (!safetensors_open(&file, path, err)) {
        err->kind = ERR_REJECT;
        return false;
    }
    ok = copy_all(lstm, file, err);
    safetensors_close(file);
    return ok;
}
