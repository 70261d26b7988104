/* loadgen.c - a single-threaded epoll load generator for OpenAI-style endpoints.
 *
 *   loadgen --target 127.0.0.1:19000 --mode unary|stream
 *           (--conc N | --rate R [--arrivals poisson|constant] [--max-conns 2048])
 *           [--duration 8] [--warmup 1] [--drain 5] [--timeout 30]
 *           [--body-bytes 200] [--tokens 64] [--path /v1/chat/completions] [--model mock]
 *           [--header 'Name: value']... [--usage] [--no-keepalive] [--messages-first] [--cpu 1]
 *           [--shape plain|messages|unicode] [--dump FILE]
 *
 * --shape: what --body-bytes are filled with: one message of English, a conversation of 450 messages
 * (system, then user and assistant in turn), or one message of raw UTF-8 outside of ASCII.
 * --dump: every latency of the window in nanoseconds, one a line, in the order of completion.
 *
 * Closed loop (--conc): N connections, each sends its next request when the last answer is whole.
 * What completes inside the measured window counts. Open loop (--rate): requests are due at times
 * laid down beforehand, and latency counts from then, however late a connection gets free or the
 * generator itself is (no coordinated omission). What is due inside the window counts, and up to
 * --drain seconds after it are spent waiting for the answers still missing.
 *
 * A stream is ok only if all of its tokens came and it ended with "data: [DONE]". Each token of
 * mockworker holds the time it was sent; now minus that is the token's relay delay.
 *
 * Prints one JSON object on stdout. Writes "window-start" and "window-end" lines to stderr at those
 * moments, so that the caller can read the proxy's CPU clock then.
 */
#include "util.h"
#include <arpa/inet.h>
#include <getopt.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- samples: every value is kept, and sorted at the end ---- */

struct samples { uint64_t *v; size_t n, cap; };

static void sample(struct samples *s, uint64_t x) {
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 65536;
        if (!(s->v = realloc(s->v, s->cap * sizeof *s->v))) die("out of memory");
    }
    s->v[s->n++] = x;
}

static int cmp_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_samples(const char *name, struct samples *s) {
    static const struct { const char *name; double q; } qs[] = {
        {"p50", .5}, {"p90", .9}, {"p99", .99}, {"p99.9", .999}, {"max", 1}};
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += (double)s->v[i];
    qsort(s->v, s->n, sizeof *s->v, cmp_u64);
    printf("\"%s\":{\"n\":%zu", name, s->n);
    if (s->n) {
        printf(",\"mean\":%.1f", sum / (double)s->n / 1e3);
        for (size_t i = 0; i < sizeof qs / sizeof *qs; i++) {
            size_t k = (size_t)ceil(qs[i].q * (double)s->n);
            printf(",\"%s\":%.1f", qs[i].name, (double)s->v[k ? k - 1 : 0] / 1e3);
        }
    }
    printf("}");
}

/* ---- options ---- */

static struct sockaddr_in target;
static bool stream, open_loop, poisson = true, keepalive = true, want_usage, messages_first;
static int conc, max_conns = 2048, tokens = 64;
static double rate, duration = 8, warmup = 1, drain = 5, timeout_s = 30;
static size_t body_bytes = 200;
static const char *path = "/v1/chat/completions", *model = "mock", *target_str;
static char extra_headers[8192];
static enum shape { PLAIN, MESSAGES, UNICODE } shape;
static const char *dump_path;

/* ---- the request: the same bytes each time, but for a number at the end of the prompt ---- */

static struct buf req_a, req_b;     /* what goes before and after the number */
#define NUM_LEN 16

#define MESSAGE_COUNT 450

static const char english[] = "the quick brown fox jumps over the lazy dog and then ";
static const char unicode[] = "\u0431\u044b\u0441\u0442\u0440\u0430\u044f \u043b\u0438\u0441\u0430 \u654f\u6377\u7684\u72d0\u72f8 "
                              "gr\u00f6\u00dfer na\u00efve \u7d20\u65e9\u3044\u72d0 \U0001F98A\U0001F415 ";

static void fill(struct buf *b, size_t until) {
    while (buf_len(b) < until) {
        if (shape == UNICODE) buf_add(b, unicode, sizeof unicode - 1);
        else buf_add(b, english, sizeof english - 1);
    }
}

/* All messages but the last, each with its share of the bytes. */
static void add_earlier_messages(struct buf *b) {
    for (size_t i = 0; i < MESSAGE_COUNT - 1; i++) {
        char open[64];
        int k = snprintf(open, sizeof open, "{\"role\":\"%s\",\"content\":\"",
                         i == 0 ? "system" : i % 2 ? "user" : "assistant");
        buf_add(b, open, (size_t)k);
        fill(b, body_bytes * (i + 1) / MESSAGE_COUNT);
        buf_add(b, "\"},", 3);
    }
}

static void build_request(void) {
    struct buf pre = {0}, post = {0};
    char s[512];
    buf_add(&pre, "{", 1);
    snprintf(s, sizeof s, "\"model\":\"%s\",", model);
    if (!messages_first) buf_add(&pre, s, strlen(s));
    bool chat = strstr(path, "chat") != NULL;
    if (shape == MESSAGES && !chat) die("--shape messages needs a chat path");
    if (chat) buf_add(&pre, "\"messages\":[", 12);
    if (shape == MESSAGES) add_earlier_messages(&pre);
    const char *open = chat ? "{\"role\":\"user\",\"content\":\"" : "\"prompt\":\"";
    buf_add(&pre, open, strlen(open));
    fill(&pre, body_bytes);
    buf_add(&pre, "request ", 8);
    const char *close = chat ? "\"}]" : "\"";
    buf_add(&post, close, strlen(close));
    if (messages_first) { s[strlen(s) - 1] = 0; buf_add(&post, ",", 1); buf_add(&post, s, strlen(s)); }
    snprintf(s, sizeof s, ",\"max_tokens\":%d%s%s}", tokens, stream ? ",\"stream\":true" : "",
             stream && want_usage ? ",\"stream_options\":{\"include_usage\":true}" : "");
    buf_add(&post, s, strlen(s));

    char head[sizeof extra_headers + 1024];
    int k = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: loadgen\r\nAccept: */*\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n%s%s\r\n",
                     path, target_str, buf_len(&pre) + NUM_LEN + buf_len(&post),
                     keepalive ? "" : "Connection: close\r\n", extra_headers);
    buf_add(&req_a, head, (size_t)k);
    buf_add(&req_a, buf_head(&pre), buf_len(&pre));
    buf_add(&req_b, buf_head(&post), buf_len(&post));
    buf_free(&pre);
    buf_free(&post);
}

/* ---- connections ---- */

enum state { CLOSED, IDLE, SENDING, READING };
enum body { BODY_HEAD, BODY_LENGTH, BODY_EOF, CHUNK_SIZE, CHUNK_DATA, CHUNK_CRLF, CHUNK_TRAILER };
enum fail { F_CONNECT, F_RESET, F_EOF, F_BAD_HTTP, F_TIMEOUT, F_TRUNCATED, F_HTTP_STATUS, F_KINDS };
static const char *fail_names[] = {"connect", "reset", "eof", "bad_http", "timeout", "truncated", "http_status"};

struct conn {
    int fd;
    enum state state;
    bool want_out;
    uint64_t t_start, t_first;  /* due (open loop) or sent (closed loop); first token, 0 before */
    uint64_t t_sent;            /* when the request really went out: for the timeout */
    char num[NUM_LEN + 1];
    size_t sent;
    /* the answer */
    enum body body;
    struct buf head;
    int status;
    bool server_close;
    uint64_t left;              /* of the body or chunk */
    bool size_ext;              /* past the digits of a chunk's size line */
    size_t line_len;            /* of a trailer line */
    uint64_t body_len;
    int got_tokens;
    uint64_t digits;            /* the timestamp being read, over any number of chunks */
    int ndigits;                /* -1: not in one */
    char tail[16];              /* the body's last bytes, to see [DONE] */
    int tail_len;
};

static int epfd;
static struct conn *conns;
static int nconns;
static struct conn **idle;
static int nidle;
static uint64_t w_start, w_end;             /* the measured window */
static uint64_t next_num;
static struct { uint64_t *due; size_t head, n, cap; } backlog;   /* open loop: due, but no connection */

static struct samples latency, e2e, delay;
static uint64_t ok, fails[F_KINDS], statuses[600], win_tokens, conns_opened, body_bytes_in, late_tokens;
static char first_error[512];
static uint64_t max_gap;        /* the longest time between two looks at the clock: did this process stall? */

static uint64_t rng = 0x9E3779B97F4A7C15ull;
static double uniform(void) {
    rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17;
    return ((double)(rng >> 11) + 0.5) / 9007199254740992.0;
}

static bool in_window(uint64_t t) { return t >= w_start && t < w_end; }

static void arm(struct conn *c, bool out) {
    if (c->want_out == out) return;
    c->want_out = out;
    struct epoll_event ev = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epfd, EPOLL_CTL_MOD, c->fd, &ev);
}

static void conn_shut(struct conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->state = CLOSED;
    c->want_out = false;
}

static void start_request(struct conn *c, uint64_t due);
static void next_request(struct conn *c);

static void request_failed(struct conn *c, enum fail why, const char *detail, size_t detail_len) {
    uint64_t t = open_loop ? c->t_start : now_ns();
    if (in_window(t)) fails[why]++;
    if (!first_error[0]) {
        int n = (int)(detail_len < 400 ? detail_len : 400);
        snprintf(first_error, sizeof first_error, "%s: %.*s", fail_names[why], n, detail);
        for (char *p = first_error; *p; p++)                 /* it goes into a JSON string */
            if (*p == '"' || *p == '\\' || *p < 32 || *p > 126) *p = ' ';
    }
    conn_shut(c);
    if (open_loop) next_request(c);     /* closed loop: the next scan reopens it, 10 ms later at most */
}

static void send_more(struct conn *c) {
    for (;;) {
        size_t la = buf_len(&req_a), lb = buf_len(&req_b), off = c->sent;
        struct { char *p; size_t n; } parts[3] = {{buf_head(&req_a), la}, {c->num, NUM_LEN}, {buf_head(&req_b), lb}};
        struct iovec iov[3];
        int n = 0;
        for (int i = 0; i < 3; i++) {
            if (off >= parts[i].n) { off -= parts[i].n; continue; }
            iov[n++] = (struct iovec){parts[i].p + off, parts[i].n - off};
            off = 0;
        }
        if (!n) { c->state = READING; arm(c, false); return; }
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        ssize_t k = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        if (k < 0) {
            if (errno == EAGAIN || errno == EINTR) { arm(c, true); return; }
            request_failed(c, F_RESET, strerror(errno), 99);
            return;
        }
        c->sent += (size_t)k;
    }
}

static void start_request(struct conn *c, uint64_t due) {
    uint64_t now = now_ns();
    c->t_start = open_loop ? due : now;
    c->t_sent = now;
    c->t_first = 0;
    c->sent = 0;
    c->body = BODY_HEAD;
    c->head.pos = c->head.end = 0;
    c->status = 0;
    c->body_len = 0;
    c->got_tokens = 0;
    c->ndigits = -1;
    c->tail_len = 0;
    c->state = SENDING;
    snprintf(c->num, sizeof c->num, "%016llx", (unsigned long long)next_num++);
    if (c->fd < 0) {
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (c->fd < 0) die("socket: %s", strerror(errno));
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(c->fd, (struct sockaddr *)&target, sizeof target) < 0 && errno != EINPROGRESS) {
            request_failed(c, F_CONNECT, strerror(errno), 99);
            return;
        }
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
        c->want_out = true;
        epoll_ctl(epfd, EPOLL_CTL_ADD, c->fd, &ev);
        conns_opened++;
        return;                       /* EPOLLOUT says when it's connected */
    }
    send_more(c);
}

/* The connection is free: in a closed loop send again, in an open one take what waits, or rest. */
static void next_request(struct conn *c) {
    if (c->fd >= 0) c->state = IDLE;
    if (!open_loop) {
        uint64_t now = now_ns();
        if (now < w_end) start_request(c, now);
    } else if (backlog.head < backlog.n) start_request(c, backlog.due[backlog.head++]);
    else idle[nidle++] = c;
}

static void request_done(struct conn *c, uint64_t now) {
    bool counts = in_window(open_loop ? c->t_start : now);
    if (counts) statuses[c->status]++;
    if (c->status != 200) { request_failed(c, F_HTTP_STATUS, buf_head(&c->head), buf_len(&c->head)); return; }
    bool whole = !stream || (c->got_tokens == tokens && memmem(c->tail, (size_t)c->tail_len, "[DONE]", 6));
    if (!whole || c->body_len == 0) {
        char s[80];
        int k = snprintf(s, sizeof s, "%d tokens, ends with %.*s", c->got_tokens, c->tail_len, c->tail);
        request_failed(c, F_TRUNCATED, s, (size_t)k);
        return;
    }
    if (counts) {
        ok++;
        sample(&latency, (stream ? c->t_first : now) - c->t_start);
        if (stream) sample(&e2e, now - c->t_start);
    }
    if (c->server_close || !keepalive) conn_shut(c);
    next_request(c);
}

/* ---- reading the answer ---- */

static void token_arrived(struct conn *c, uint64_t now) {
    c->got_tokens++;
    if (!c->t_first) c->t_first = now;
    if (!in_window(now)) return;
    win_tokens++;
    if (now >= c->digits) sample(&delay, now - c->digits);
    else late_tokens++;              /* cannot happen on one machine: shown if it does */
}

static void body_bytes_arrived(struct conn *c, const char *p, size_t n, uint64_t now) {
    c->body_len += n;
    body_bytes_in += n;
    size_t keep = sizeof c->tail;
    if (n >= keep) { memcpy(c->tail, p + n - keep, keep); c->tail_len = (int)keep; }
    else {
        size_t old = (size_t)c->tail_len < keep - n ? (size_t)c->tail_len : keep - n;
        memmove(c->tail, c->tail + c->tail_len - old, old);
        memcpy(c->tail + old, p, n);
        c->tail_len = (int)(old + n);
    }
    if (!stream) return;
    const char *end = p + n;
    while (p < end) {
        if (c->ndigits < 0) {                         /* look for the '=' of t=<digits> */
            if (!(p = memchr(p, '=', (size_t)(end - p)))) return;
            p++;
            c->ndigits = 0;
            c->digits = 0;
            continue;
        }
        for (; p < end && *p >= '0' && *p <= '9'; p++) { c->digits = c->digits * 10 + (uint64_t)(*p - '0'); c->ndigits++; }
        if (p == end) return;                         /* goes on in the next piece */
        if (c->ndigits >= 10) token_arrived(c, now);
        c->ndigits = -1;
    }
}

/* The head is whole: see how the body is framed. False: not HTTP. */
static bool parse_head(struct conn *c, size_t head_len) {
    const char *h = buf_head(&c->head);
    if (head_len < 12 || memcmp(h, "HTTP/1.", 7)) return false;
    c->status = atoi(h + 9);
    if (c->status < 100 || c->status > 599) return false;
    c->server_close = header_has(h, head_len, "connection", "close") ||
                      (h[7] == '0' && !header_has(h, head_len, "connection", "keep-alive"));
    size_t vlen;
    const char *v;
    if (header_has(h, head_len, "transfer-encoding", "chunked")) {
        c->body = CHUNK_SIZE;
        c->left = 0;
        c->size_ext = false;
    } else if ((v = find_header(h, head_len, "content-length", &vlen))) {
        c->body = BODY_LENGTH;
        c->left = strtoull(v, NULL, 10);
    } else {
        c->body = BODY_EOF;
        c->server_close = true;
    }
    return true;
}

/* Feed n bytes. Returns 1 when the answer is whole, 0 when not, -1 when it's bad. */
static int feed(struct conn *c, const char *p, size_t n, uint64_t now) {
    const char *end = p + n;
    while (p < end || (c->body == BODY_LENGTH && c->left == 0)) {
        switch (c->body) {
        case BODY_HEAD: {
            size_t old = buf_len(&c->head), from = old > 3 ? old - 3 : 0;
            buf_add(&c->head, p, (size_t)(end - p));
            char *e = memmem(buf_head(&c->head) + from, buf_len(&c->head) - from, "\r\n\r\n", 4);
            if (!e) return buf_len(&c->head) > 65536 ? -1 : 0;
            size_t head_len = (size_t)(e - buf_head(&c->head)) + 4;
            p += head_len - old;
            if (!parse_head(c, head_len)) return -1;
            if (c->status < 200) { c->body = BODY_HEAD; c->head.pos = c->head.end = 0; }
            break;
        }
        case BODY_LENGTH: {
            size_t k = (size_t)(end - p) < c->left ? (size_t)(end - p) : (size_t)c->left;
            if (k) body_bytes_arrived(c, p, k, now);
            p += k;
            if (!(c->left -= k)) return 1;
            break;
        }
        case BODY_EOF:
            body_bytes_arrived(c, p, (size_t)(end - p), now);
            p = end;
            break;
        case CHUNK_SIZE: {
            char ch = *p++;
            int d = ch >= '0' && ch <= '9' ? ch - '0' : (ch | 32) >= 'a' && (ch | 32) <= 'f' ? (ch | 32) - 'a' + 10 : -1;
            if (ch == '\n') {
                c->body = c->left ? CHUNK_DATA : CHUNK_TRAILER;
                c->line_len = 0;
            } else if (ch == ';') c->size_ext = true;
            else if (c->size_ext || ch == '\r' || ch == ' ') ;
            else if (d < 0) return -1;
            else c->left = c->left * 16 + (uint64_t)d;
            break;
        }
        case CHUNK_DATA: {
            size_t k = (size_t)(end - p) < c->left ? (size_t)(end - p) : (size_t)c->left;
            body_bytes_arrived(c, p, k, now);
            p += k;
            if (!(c->left -= k)) c->body = CHUNK_CRLF;
            break;
        }
        case CHUNK_CRLF:
            if (*p == '\n') { c->body = CHUNK_SIZE; c->left = 0; c->size_ext = false; }
            else if (*p != '\r') return -1;
            p++;
            break;
        case CHUNK_TRAILER:
            if (*p == '\n') { if (c->line_len == 0) return 1; c->line_len = 0; }
            else if (*p != '\r') c->line_len++;
            p++;
            break;
        }
    }
    return 0;
}

static void on_readable(struct conn *c) {
    static char buf[262144];
    ssize_t k = recv(c->fd, buf, sizeof buf, 0);
    uint64_t now = now_ns();
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (c->state == IDLE) {                     /* the server closed a resting connection */
        conn_shut(c);                           /* (it stays in the idle list, and is reopened from there) */
        return;
    }
    if (k <= 0) {
        if (k == 0 && c->body == BODY_EOF && c->status) { c->server_close = true; request_done(c, now); }
        else if (k == 0) request_failed(c, F_EOF, buf_head(&c->head), buf_len(&c->head));
        else request_failed(c, errno == ECONNREFUSED ? F_CONNECT : F_RESET, strerror(errno), 99);
        return;
    }
    int r = feed(c, buf, (size_t)k, now);
    if (r < 0) request_failed(c, F_BAD_HTTP, buf, (size_t)k);
    else if (r > 0) request_done(c, now);
}

/* Send a request that is due: on a resting connection, else a new one, else it waits. */
static void dispatch(uint64_t due) {
    if (nidle) { start_request(idle[--nidle], due); return; }
    if (nconns < max_conns) {
        struct conn *c = &conns[nconns++];
        c->fd = -1;
        start_request(c, due);
        return;
    }
    if (backlog.n == backlog.cap) {
        backlog.cap = backlog.cap ? backlog.cap * 2 : 4096;
        if (!(backlog.due = realloc(backlog.due, backlog.cap * sizeof *backlog.due))) die("out of memory");
    }
    backlog.due[backlog.n++] = due;
}

static uint64_t unfinished(void) {
    uint64_t n = 0;
    for (size_t i = backlog.head; i < backlog.n; i++) n += in_window(backlog.due[i]);
    for (int i = 0; i < nconns; i++)
        n += (conns[i].state == SENDING || conns[i].state == READING) && in_window(conns[i].t_start);
    return n;
}

static void dump_latencies(void) {
    FILE *f = fopen(dump_path, "w");
    if (!f) die("%s: %s", dump_path, strerror(errno));
    for (size_t i = 0; i < latency.n; i++) fprintf(f, "%llu\n", (unsigned long long)latency.v[i]);
    if (fclose(f)) die("%s: %s", dump_path, strerror(errno));
}

static void report(void) {
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    double secs = (double)(w_end - w_start) / 1e9;
    uint64_t failed = 0;
    for (int i = 0; i < F_KINDS; i++) failed += fails[i];
    printf("{\"mode\":\"%s\",\"loop\":\"%s\",\"window_s\":%.3f,\"ok\":%llu,\"failed\":%llu,\"rps\":%.1f,",
           stream ? "stream" : "unary", open_loop ? "open" : "closed", secs, (unsigned long long)ok,
           (unsigned long long)failed, (double)ok / secs);
    printf("\"status\":{");
    const char *sep = "";
    for (int i = 0; i < 600; i++)
        if (statuses[i]) { printf("%s\"%d\":%llu", sep, i, (unsigned long long)statuses[i]); sep = ","; }
    printf("},\"failures\":{");
    sep = "";
    for (int i = 0; i < F_KINDS; i++)
        if (fails[i]) { printf("%s\"%s\":%llu", sep, fail_names[i], (unsigned long long)fails[i]); sep = ","; }
    printf("},\"first_error\":\"%s\",", first_error);
    print_samples("latency_us", &latency);
    if (stream) {
        printf(",");
        print_samples("e2e_us", &e2e);
        printf(",");
        print_samples("token_delay_us", &delay);
    }
    printf(",\"tokens\":%llu,\"tokens_per_s\":%.1f,\"unfinished\":%llu,\"conns_opened\":%llu,\"late_tokens\":%llu,"
           "\"max_gap_ms\":%.1f,\"loadgen_cpu_s\":%.3f}\n",
           (unsigned long long)win_tokens, (double)win_tokens / secs, (unsigned long long)(open_loop ? unfinished() : 0),
           (unsigned long long)conns_opened, (unsigned long long)late_tokens, (double)max_gap / 1e6,
           (double)ru.ru_utime.tv_sec + (double)ru.ru_stime.tv_sec + (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6);
}

static void parse_options(int argc, char **argv) {
    static const struct option opts[] = {
        {"target", 1, 0, 't'}, {"mode", 1, 0, 'm'}, {"conc", 1, 0, 'c'}, {"rate", 1, 0, 'r'}, {"arrivals", 1, 0, 'a'},
        {"max-conns", 1, 0, 'M'}, {"duration", 1, 0, 'd'}, {"warmup", 1, 0, 'w'}, {"drain", 1, 0, 'D'},
        {"timeout", 1, 0, 'T'}, {"body-bytes", 1, 0, 'b'}, {"tokens", 1, 0, 'n'}, {"path", 1, 0, 'p'},
        {"model", 1, 0, 'o'}, {"header", 1, 0, 'H'}, {"usage", 0, 0, 'u'}, {"no-keepalive", 0, 0, 'k'},
        {"messages-first", 0, 0, 'f'}, {"cpu", 1, 0, 'C'}, {"shape", 1, 0, 's'}, {"dump", 1, 0, 'x'}, {0}};
    for (int o; (o = getopt_long(argc, argv, "", opts, NULL)) != -1;) {
        switch (o) {
        case 't': target_str = optarg; break;
        case 'm': stream = !strcmp(optarg, "stream"); break;
        case 'c': conc = atoi(optarg); break;
        case 'r': rate = atof(optarg); open_loop = true; break;
        case 'a': poisson = strcmp(optarg, "constant") != 0; break;
        case 'M': max_conns = atoi(optarg); break;
        case 'd': duration = atof(optarg); break;
        case 'w': warmup = atof(optarg); break;
        case 'D': drain = atof(optarg); break;
        case 'T': timeout_s = atof(optarg); break;
        case 'b': body_bytes = (size_t)atol(optarg); break;
        case 'n': tokens = atoi(optarg); break;
        case 'p': path = optarg; break;
        case 'o': model = optarg; break;
        case 'H': {
            size_t at = strlen(extra_headers);
            snprintf(extra_headers + at, sizeof extra_headers - at, "%s\r\n", optarg);
            break;
        }
        case 'u': want_usage = true; break;
        case 'k': keepalive = false; break;
        case 'f': messages_first = true; break;
        case 'C': pin_cpu(atoi(optarg)); break;
        case 's':
            if (!strcmp(optarg, "plain")) shape = PLAIN;
            else if (!strcmp(optarg, "messages")) shape = MESSAGES;
            else if (!strcmp(optarg, "unicode")) shape = UNICODE;
            else die("--shape is plain, messages or unicode");
            break;
        case 'x': dump_path = optarg; break;
        default: die("see the head of loadgen.c for the options");
        }
    }
    char host[64];
    int port;
    if (!target_str || sscanf(target_str, "%63[^:]:%d", host, &port) != 2) die("--target host:port is needed");
    if (open_loop == (conc > 0)) die("give either --conc or --rate");
    target.sin_family = AF_INET;
    target.sin_port = htons((uint16_t)port);
    if (!strcmp(host, "localhost")) strcpy(host, "127.0.0.1");
    if (inet_pton(AF_INET, host, &target.sin_addr) != 1) die("bad host %s", host);
    if ((ntohl(target.sin_addr.s_addr) >> 24) != 127) die("loopback targets only");
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    build_request();
    epfd = epoll_create1(EPOLL_CLOEXEC);
    int slots = open_loop ? max_conns : conc;
    conns = calloc((size_t)slots, sizeof *conns);
    idle = calloc((size_t)slots, sizeof *idle);
    if (!conns || !idle) die("out of memory");

    uint64_t t0 = now_ns();
    w_start = t0 + (uint64_t)(warmup * 1e9);
    w_end = w_start + (uint64_t)(duration * 1e9);
    uint64_t next_due = t0, stop = w_end + (uint64_t)((open_loop ? drain : 0) * 1e9), next_scan = t0;
    uint64_t last = t0;
    bool started = false, ended = false;
    if (!open_loop)
        for (; nconns < conc; nconns++) conns[nconns].fd = -1;   /* the first scan opens them */

    for (;;) {
        uint64_t now = now_ns();
        if (now - last > max_gap) max_gap = now - last;
        last = now;
        if (!started && now >= w_start) { started = true; fputs("window-start\n", stderr); }
        if (!ended && now >= w_end) { ended = true; fputs("window-end\n", stderr); }
        if (ended && (now >= stop || !unfinished())) break;
        if (open_loop)
            while (next_due <= now && next_due < w_end) {
                dispatch(next_due);
                next_due += (uint64_t)((poisson ? -log(uniform()) : 1) / rate * 1e9);
            }
        now = now_ns();
        if (now >= next_scan) {      /* reopen closed connections, and give up on lost requests */
            for (int i = 0; i < nconns; i++) {
                struct conn *c = &conns[i];
                if (!open_loop && c->state == CLOSED && !ended) start_request(c, now);
                else if ((c->state == SENDING || c->state == READING) && now - c->t_sent > (uint64_t)(timeout_s * 1e9))
                    request_failed(c, F_TIMEOUT, "no whole answer in time", 99);
            }
            next_scan = now + 10 * NS_PER_MS;
        }
        uint64_t wake = next_scan;
        if (open_loop && !ended && next_due < wake) wake = next_due;
        now = now_ns();
        uint64_t d = wake > now ? wake - now : 0;
        struct timespec w = {(time_t)(d / NS_PER_S), (long)(d % NS_PER_S)};
        struct epoll_event evs[256];
        int n = epoll_pwait2(epfd, evs, 256, &w, NULL);
        for (int i = 0; i < n; i++) {
            struct conn *c = evs[i].data.ptr;
            if (c->fd < 0) continue;
            if (evs[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c);
            if (c->fd >= 0 && c->state == SENDING && (evs[i].events & EPOLLOUT)) send_more(c);
        }
    }
    if (dump_path) dump_latencies();    /* before report(), which sorts */
    report();
    return 0;
}
