/* harness/twin/fast.py, open loop, once more: the same jumps and sums in the same order, so that hundreds of searches
   take minutes. bench/swift.py holds it to fast.py, bit for bit. Virtual time; no I/O. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct flight {
    const double *due_s; /* n of them, then infinity */
    const int64_t *prompt, *output;
    const double *tau_s; /* seconds of a step by its batch, 0 to seats */
    double prefill_s, kv_s;
    int64_t seats, tokens;
    double *first_s, *last_s;
    int64_t room; /* runs of steps that the next four can hold */
    int32_t *batch, *decoding;
    int64_t *count;
    double *end_s;
};

struct finish {
    int64_t step, request;
};

static int before(struct finish a, struct finish b) {
    return a.step < b.step || (a.step == b.step && a.request < b.request);
}

static void push(struct finish *heap, int64_t *size, struct finish one) {
    int64_t at = (*size)++;
    for (; at && before(one, heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = one;
}

static struct finish pop(struct finish *heap, int64_t *size) {
    struct finish top = heap[0], last = heap[--*size];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < *size; at = child) {
        if (child + 1 < *size && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], last)) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static double within(double span_s, double first_s, double growth_s) {
    if (growth_s == 0) return span_s / first_s;
    double half = first_s - growth_s / 2;
    return 2 * span_s / (half + sqrt(half * half + 2 * growth_s * span_s));
}

/* Runs of steps taken; only the first `room` are noted. -1: no memory. */
int64_t flown(const struct flight *f) {
    struct finish *ending = malloc((f->seats + 1) * sizeof *ending);
    int64_t *entering = malloc((f->seats + 1) * sizeof *entering);
    int64_t size = 0, runs = 0, step = 0, head = 0, context = 0, partial = 0, done = 0, left = 0;
    double now = 0;
    while (ending && entering) {
        int64_t decoding = size, batch = size, count = 1, entered = 0;
        if (left || (f->due_s[head] <= now && size < f->seats)) {
            int64_t budget = f->tokens - decoding, room = budget, read = context;
            if (left) {
                int64_t part = left < budget ? left : budget;
                batch++;
                budget -= part;
                left -= part;
                done += part;
                read += done;
                if (!left) entering[entered++] = partial;
            }
            while (budget && batch < f->seats && f->due_s[head] <= now) {
                int64_t prompt = f->prompt[head];
                if (prompt <= budget) {
                    entering[entered++] = head;
                    budget -= prompt;
                    read += prompt;
                } else {
                    partial = head;
                    done = budget;
                    left = prompt - budget;
                    read += budget;
                    budget = 0;
                }
                batch++;
                head++;
            }
            now = now + f->tau_s[batch] + f->prefill_s * (room - budget) + f->kv_s * read;
        } else if (size) {
            double due = size < f->seats ? f->due_s[head] : INFINITY;
            double first = f->tau_s[size] + f->kv_s * context, growth = f->kv_s * size, half = growth / 2;
            count = ending[0].step - step;
            double end = now + count * (first + half * (count - 1));
            if (due < end) {
                count = (int64_t)within(due - now, first, growth);
                if (!count) count = 1;
                end = now + count * (first + half * (count - 1));
                while (end < due) {
                    count++;
                    end = now + count * (first + half * (count - 1));
                }
            }
            now = end;
        } else if (f->due_s[head] < INFINITY) {
            now = f->due_s[head];
            count = 0;
        } else {
            break;
        }
        if (runs < f->room) {
            f->batch[runs] = batch;
            f->decoding[runs] = decoding;
            f->count[runs] = count;
            f->end_s[runs] = now;
        }
        runs++;
        step += count;
        context += count * decoding;
        while (size && ending[0].step <= step) {
            int64_t request = pop(ending, &size).request;
            context -= f->prompt[request] + f->output[request];
            f->last_s[request] = now;
        }
        for (int64_t at = 0; at < entered; at++) {
            int64_t request = entering[at], later = f->output[request] - 1;
            f->first_s[request] = now;
            if (later) {
                push(ending, &size, (struct finish){step + later, request});
                context += f->prompt[request] + 1;
            } else {
                f->last_s[request] = now;
            }
        }
    }
    int whole = ending && entering;
    free(ending);
    free(entering);
    return whole ? runs : -1;
}
