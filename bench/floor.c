/* The floor: what reading token streams costs a client that does nothing else.
 *
 * One thread, epoll and recvmsg with kernel stamps. N connections, spread over the ramp, each sends a POST, reads until
 * the body has ended and sends the next. Counts and CPU time are those of the window after the ramp; CPU time is that of
 * the whole process, user and system. A read with more than one token in it is coalesced: the kernel stamps only the
 * newest segment.
 *
 * NAP_US says how it waits: 0 sleeps in epoll_wait until something comes, so the sender pays for waking it; -1 never
 * sleeps; N > 0 takes what has come and then sleeps N µs whatever comes, so one waking serves many tokens. Kernel stamps
 * make a nap harmless as long as it is shorter than the gaps.
 *
 * cc -O2 -o floor bench/floor.c && ./floor PORT STREAMS RAMP_S WINDOW_S NAP_US       (IPv4 loopback only)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char BODY[] =
    "{\"model\":\"known\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"as fast as it goes\"}]}";
static const char HEAD[] =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: floor\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s";
static char request[512];
static int request_size;
static const char TOKEN[] = "\"delta\":{\"content\":\"";
static const char END[] = "0\r\n\r\n";

struct tally {
    uint64_t reads, tokens, coalesced, responses, unstamped;
    double cpu_s, wall_s, queued_s;
};

static struct tally now;

static void die(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double wall_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu_s(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* Time this process was ready to run and had no core; 0 where the system does not tell. */
static double queued_s(void) {
    unsigned long long on_cpu_ns, queued_ns = 0;
    FILE *stat = fopen("/proc/self/schedstat", "r");
    if (stat == NULL) return 0;
    if (fscanf(stat, "%llu %llu", &on_cpu_ns, &queued_ns) != 2) queued_ns = 0;
    fclose(stat);
    return queued_ns * 1e-9;
}

static struct tally taken(void) {
    struct tally t = now;
    t.cpu_s = cpu_s();
    t.wall_s = wall_s();
    t.queued_s = queued_s();
    return t;
}

static void ask(int fd) {
    if (send(fd, request, request_size, MSG_NOSIGNAL) != request_size) die("send");
}

static void join(int poll_fd, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on)) die("SO_TIMESTAMPNS");
    event.data.fd = fd;
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
    ask(fd);
}

static unsigned tokens_in(const char *data, size_t size) {
    const char *end = data + size;
    unsigned found = 0;
    while ((data = memmem(data, end - data, TOKEN, sizeof TOKEN - 1)) != NULL) {
        data += sizeof TOKEN - 1;
        found++;
    }
    return found;
}

static void take(int fd) {
    static char data[65536];
    char control[64];
    struct iovec into = {.iov_base = data, .iov_len = sizeof data};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(fd, &message, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) die("the server closed a connection");
    unsigned found = tokens_in(data, size);
    now.reads++;
    now.tokens += found;
    now.coalesced += found > 1;
    now.unstamped += CMSG_FIRSTHDR(&message) == NULL;
    if (size >= 5 && memcmp(data + size - 5, END, 5) == 0) {
        now.responses++;
        ask(fd);
    }
}

static void report(int streams, struct tally a, struct tally b) {
    double cpu = b.cpu_s - a.cpu_s, wall = b.wall_s - a.wall_s;
    uint64_t reads = b.reads - a.reads, tokens = b.tokens - a.tokens;
    printf("{\"streams\": %d, \"window_s\": %.3f, \"reads\": %lu, \"token_events\": %lu, \"coalesced_reads\": %lu, "
           "\"unstamped_reads\": %lu, \"responses\": %lu, \"tokens_per_s\": %.0f, \"cpu_s\": %.3f, "
           "\"queued\": %.4f, \"cpu_us_per_read\": %.3f, \"cpu_us_per_token\": %.3f}\n",
           streams, wall, reads, tokens, b.coalesced - a.coalesced, b.unstamped - a.unstamped,
           b.responses - a.responses, tokens / wall, cpu, (b.queued_s - a.queued_s) / wall, cpu * 1e6 / (reads ? reads : 1),
           cpu * 1e6 / (tokens ? tokens : 1));
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: floor PORT STREAMS RAMP_S WINDOW_S NAP_US\n");
        return 2;
    }
    int port = atoi(argv[1]), streams = atoi(argv[2]), nap_us = atoi(argv[5]), joined = 0, ramped = 0;
    double ramp_s = atof(argv[3]), window_s = atof(argv[4]), begun_s = wall_s();
    struct tally first = {0};
    request_size = snprintf(request, sizeof request, HEAD, sizeof BODY - 1, BODY);
    struct epoll_event events[64];
    int poll_fd = epoll_create1(0);
    for (;;) {
        double at_s = wall_s() - begun_s;
        while (joined < streams && joined <= streams * at_s / ramp_s) {
            join(poll_fd, port);
            joined++;
        }
        if (!ramped && joined == streams && at_s >= ramp_s) {
            first = taken();
            ramped = 1;
        }
        if (ramped && at_s >= ramp_s + window_s) break;
        int ready = epoll_wait(poll_fd, events, 64, nap_us == 0);
        for (int i = 0; i < ready; i++) take(events[i].data.fd);
        if (nap_us > 0 && ready < 64) usleep(nap_us);
    }
    report(streams, first, taken());
    return 0;
}
