/*
 * Loaded in front of the C library, this shifts the wall clock of a process by
 * as many nanoseconds as the first eight bytes of a file say, which may change
 * at any time. The file is named by REDISTEST_CLOCK. The monotonic clock stays
 * as it is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *skew;

__attribute__((constructor)) static void open_skew(void) {
	const char *name = getenv("REDISTEST_CLOCK");
	if (name == NULL) return;
	int file = open(name, O_RDONLY | O_CLOEXEC);
	if (file < 0) abort();
	void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	if (page == MAP_FAILED) abort();
	close(file);
	skew = page;
}

/* The kernel is asked directly: looking the real function up would allocate. */
int clock_gettime(clockid_t id, struct timespec *t) {
	int result = (int)syscall(SYS_clock_gettime, id, t);
	if (result != 0 || skew == NULL) return result;
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return result;
	int64_t total = (int64_t)t->tv_nsec + *skew % 1000000000;
	t->tv_sec += *skew / 1000000000;
	if (total < 0) { total += 1000000000; t->tv_sec--; }
	if (total >= 1000000000) { total -= 1000000000; t->tv_sec++; }
	t->tv_nsec = total;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec t;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &t) != 0) return -1;
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec t;
	if (clock_gettime(CLOCK_REALTIME, &t) != 0) return (time_t)-1;
	if (out != NULL) *out = t.tv_sec;
	return t.tv_sec;
}
