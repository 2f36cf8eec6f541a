/* Shifts the time of day of one program by BROKKR_CLOCK_SHIFT seconds, and no other clock. If it is the path of a file, the
   seconds are read from there each time, so that the clock can be set while the program runs. Loaded with LD_PRELOAD,
   because the kernel's time namespaces shift only the monotonic and boot-time clocks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *text = getenv("BROKKR_CLOCK_SHIFT");
    char seconds[32] = {0};
    if (!text) return 0;
    if (text[0] != '/') return atol(text);
    int file = open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, seconds, sizeof seconds - 1);
    close(file);
    return length > 0 ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (out) *out = precise.tv_sec;
    return precise.tv_sec;
}
