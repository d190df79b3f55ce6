/* A continuous-batching server for bench/accuracy.py, deliberately unlike the twin: step time bends with the batch,
   grows with context, scatters and stalls; prompts are cached in part; drafts give several tokens a step. Without any
   of that it computes what harness/engine/core.py does, and the bench checks it. Virtual time, seeded; no I/O. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct server {
    double base_ms, sequence_ms, square_ms; /* step of b sequences: base + sequence * b + square * b * b */
    double prefill_ms, kv_ms, draft_ms;     /* a prefill token, a token of context, a step with drafts */
    double jitter;                          /* standard deviation of ln(step time) */
    double stalls_per_s, stall_s;           /* Poisson stalls, exponential length */
    double constant_s;                      /* before a request reaches the engine */
    double acceptance;                      /* chance of a draft, while all before it were accepted */
    int64_t drafts, seats, tokens, seed;
};

struct sequence {
    int64_t request, left, produced, context; /* left: prompt tokens to compute */
    double last;                              /* when it last gave tokens */
};

/* Gaps between tokens on the grid of harness/twin/gaps.py, of requests from `first` on. */
struct gaps {
    double *tokens, shortest_s, cell_ln;
    int64_t cells, first;
};

/* `tokens` after a gap of `seconds`. Neighbours in a step waited as long: `known` is the cell of `before`. */
static void note(struct gaps *g, double seconds, int64_t tokens, double *before, int64_t *known) {
    double each = seconds / tokens;
    if (each != *before) {
        double at = floor(log(each / g->shortest_s) / g->cell_ln);
        *before = each;
        *known = at < 0 ? 0 : at >= g->cells ? g->cells - 1 : (int64_t)at;
    }
    g->tokens[*known] += tokens;
}

static uint64_t next_bits(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) { return ((next_bits(state) >> 11) + 0.5) / 9007199254740992.0; }

static double normal(uint64_t *state) {
    double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* Seconds of one step, luck included. */
static double duration(const struct server *s, int64_t batch, int64_t prefill, int64_t context, int drafted,
                       uint64_t *state) {
    double ms = s->base_ms + s->sequence_ms * batch + s->square_ms * batch * batch + s->prefill_ms * prefill;
    ms += s->kv_ms * context + (drafted ? s->draft_ms : 0);
    double seconds = ms / 1e3;
    if (s->jitter > 0) seconds *= exp(s->jitter * normal(state) - s->jitter * s->jitter / 2);
    if (s->stalls_per_s > 0 && uniform(state) < s->stalls_per_s * seconds) seconds -= s->stall_s * log(uniform(state));
    return seconds;
}

/* Every request from arrival to its last token; arrivals rise. `gaps` may be null. Returns 0, or 1 without memory. */
int lived(const struct server *s, int64_t n, const double *arrival_s, const int64_t *prompt, const int64_t *output,
          const int64_t *cached, double *first_s, double *last_s, int64_t *first_tokens, struct gaps *gaps) {
    struct sequence *running = malloc(s->seats * sizeof *running);
    int64_t *given = malloc(s->seats * sizeof *given);
    if (!running || !given) {
        free(running);
        free(given);
        return 1;
    }
    uint64_t state = (uint64_t)s->seed;
    int64_t count = 0, waiting = 0, arrived = 0, done = 0; /* waiting: the oldest request without a seat */
    double now = 0, before = -1;
    int64_t known = 0;
    while (done < n) {
        if (!count && waiting == arrived && arrival_s[arrived] + s->constant_s > now)
            now = arrival_s[arrived] + s->constant_s;
        while (arrived < n && arrival_s[arrived] + s->constant_s <= now) arrived++;
        int64_t budget = s->tokens, work = 0, prefill = 0, context = 0;
        int drafted = 0;
        for (; work < count && budget; work++) {
            struct sequence *one = &running[work];
            int64_t wanted = one->left;
            if (!wanted) {
                int64_t room = output[one->request] - one->produced - 1;
                wanted = 1 + (room < s->drafts ? room : s->drafts);
            }
            given[work] = wanted < budget ? wanted : budget;
            if (one->left) prefill += given[work];
            else drafted |= given[work] > 1;
            context += one->context + given[work];
            budget -= given[work];
        }
        while (budget && waiting < arrived && count < s->seats) {
            struct sequence *one = &running[count++];
            one->request = waiting++;
            one->produced = 0;
            one->context = cached[one->request];
            one->left = prompt[one->request] - one->context;
            given[work] = one->left < budget ? one->left : budget;
            prefill += given[work];
            context += one->context + given[work];
            budget -= given[work++];
        }
        now += duration(s, work, prefill, context, drafted, &state);
        int64_t kept = 0;
        for (int64_t at = 0; at < count; at++) {
            struct sequence one = running[at];
            if (at < work) {
                int64_t yield = 1;
                if (one.left) {
                    one.left -= given[at];
                    one.context += given[at];
                    yield = one.left == 0;
                } else {
                    while (yield < given[at] && uniform(&state) < s->acceptance) yield++;
                    one.context += yield;
                }
                if (yield && !one.produced) {
                    first_s[one.request] = now;
                    first_tokens[one.request] = yield;
                }
                if (yield) {
                    if (gaps && one.produced && one.request >= gaps->first)
                        note(gaps, now - one.last, yield, &before, &known);
                    one.last = now;
                }
                one.produced += yield;
                if (one.produced == output[one.request]) {
                    last_s[one.request] = now;
                    done++;
                    continue;
                }
            }
            running[kept++] = one;
        }
        count = kept;
    }
    free(running);
    free(given);
    return 0;
}
