/*
 * A clock that can be set, for servers that preload this library. IDGEN_CLOCK names a file with the struct below.
 * CLOCK_MONOTONIC and CLOCK_BOOTTIME stay correct, as when an administrator sets the clock. IDGEN_LOOK_NS is the minimal
 * duration of a call after its reading of the clock, for faults that strike right after the reading.
 *
 * libfaketime does not fit: it opens a file at each reading of the clock, and PostgreSQL reads the clock in its handler of
 * SIGALRM. A timer that goes off during another reading would break the heap, or make the session wait for its own lock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* An entry that is in use is not overwritten, because a reader might see half of it. */
struct clock
{
	int64_t		ahead_ns[256];	/* by how much the clock is ahead of the machine's */
	uint8_t		current;		/* which of these is in use */
	uint8_t		late_checkpointer;	/* it stops before it has read the configuration */
};

static const struct clock machine;
static const struct clock *clock_set = &machine;
static int64_t look_ns;

static int	(*real) (clockid_t, struct timespec *);

__attribute__((constructor)) static void
open_clock(void)
{
	const char *path = getenv("IDGEN_CLOCK");
	int			fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	clock_set = mmap(NULL, sizeof *clock_set, PROT_READ, MAP_SHARED, fd, 0);
	if (clock_set == MAP_FAILED)
		_exit(99);				/* a test without its clock must not continue */
	close(fd);
	if (getenv("IDGEN_LOOK_NS") != NULL)
		look_ns = atoll(getenv("IDGEN_LOOK_NS"));
}

static int64_t
in_ns(const struct timespec *time)
{
	return time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

static int64_t
since_boot_ns(void)
{
	struct timespec now;

	real(CLOCK_MONOTONIC, &now);
	return in_ns(&now);
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result;
	int64_t		ns;

	/* Libraries may call this before open_clock(). */
	if (real == NULL)
		real = dlsym(RTLD_NEXT, "clock_gettime");
	result = real(clock, now);
	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
	{
		ns = in_ns(now) + clock_set->ahead_ns[__atomic_load_n(&clock_set->current, __ATOMIC_ACQUIRE)];
		now->tv_sec = ns / 1000000000;
		now->tv_nsec = ns % 1000000000;
		if (look_ns > 0)
			for (ns = since_boot_ns() + look_ns; since_boot_ns() < ns;)
				;
	}
	return result;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;

	(void) zone;				/* which is obsolete */
	clock_gettime(CLOCK_REALTIME, &precise);
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

static int
is_checkpointer(void)
{
	static const char title[] = "postgres: checkpointer";
	char		own[sizeof title] = "";
	int			fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t		length = read(fd, own, sizeof title - 1);

	close(fd);
	return length > 0 && strcmp(own, title) == 0;
}

time_t
time(time_t *also)
{
	static int	has_stopped;
	struct timespec precise;

	/* The checkpointer asks for this when it begins, before it puts what it has read into shared memory. */
	if (clock_set->late_checkpointer && !has_stopped && is_checkpointer())
	{
		has_stopped = 1;
		raise(SIGSTOP);
	}
	clock_gettime(CLOCK_REALTIME, &precise);
	if (also != NULL)
		*also = precise.tv_sec;
	return precise.tv_sec;
}
