/* SPDX-License-Identifier: Apache-2.0
 *
 * defaults - of what decides how batches grow, who gets what and how many workers are wanted.
 *
 * pelton-scheduler ships them and pelton-sim runs them: what the simulator says of a default is
 * said of these. As text, as both tables of keys have them. Where they come from:
 * docs/DECISIONS.md, The batch size's defaults.
 */
#ifndef SCHEDULER_DEFAULTS_H
#define SCHEDULER_DEFAULTS_H

#define DEFAULT_BATCH_MAX              "auto"
#define DEFAULT_BATCH_WINDOW           "500ms"
#define DEFAULT_BATCH_THRESHOLD        "0.75"
#define DEFAULT_BATCH_ALPHA            "0.5"
#define DEFAULT_BATCH_SMOOTHING        "0.5"
#define DEFAULT_PRESSURE_GAIN          "1"
#define DEFAULT_KV_SHARE               "75%"
#define DEFAULT_STEP_TARGET            "none"
#define DEFAULT_ASSIGN_AHEAD           "50%"
#define DEFAULT_LONG_REQUEST_TOKENS    "0"
#define DEFAULT_LONG_SHARE             "50%"
#define DEFAULT_PREFIX_AFFINITY_WEIGHT "1"

#define DEFAULT_PREDICTION_WINDOW "15min"
#define DEFAULT_UTILISATION       "90%"
#define DEFAULT_DRAIN             "10min"
#define DEFAULT_SCALE_DOWN        "10min"
#define DEFAULT_PLAN_INTERVAL     "5s"

#endif
