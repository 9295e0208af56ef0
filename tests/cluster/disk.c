/*
 * A disk under the WAL that stalls, fails or fills up, and that loses unflushed data when power fails, for servers that
 * preload this library. IDGEN_DISK names a file with the struct below.
 *
 * Before bytes of a segment are overwritten, they go to the journal of the segment, IDGEN_DISK.SEGMENT, which a flush
 * empties. When the server is dead, the journals hold the data that the disk would still have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct disk
{
	int32_t		write_errno;	/* the error of calls that write, or 0 */
	int32_t		flush_errno;	/* the error of calls that flush, or 0 */
	int32_t		stall_ms;		/* how long calls that flush take, at least */
	int32_t		spared;			/* how many calls are still spared */
	int32_t		left;			/* how many calls are struck after them */
	int32_t		struck;			/* how many were struck so far */
	int32_t		kept;			/* how often bytes went to a journal */
};

static struct disk *disk;

__attribute__((constructor)) static void
open_disk(void)
{
	const char *path = getenv("IDGEN_DISK");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	disk = mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (disk == MAP_FAILED)
		disk = NULL;
	close(fd);
}

/* The next definition of the function around this, which libraries may call before open_disk(). */
#define REAL(name) \
	({ \
		static __typeof__(&name) next; \
		if (next == NULL) \
			next = dlsym(RTLD_NEXT, #name); \
		next; \
	})

/* The name of a file of the WAL, or NULL for any other. */
static const char *
wal_file(int fd, char *path)
{
	char		link[32];
	ssize_t		length;
	char	   *name;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, PATH_MAX - 1);
	if (disk == NULL || length < 0)
		return NULL;
	path[length] = '\0';
	name = strrchr(path, '/');
	return name != NULL && name - path >= 7 && strncmp(name - 7, "/pg_wal", 7) == 0 ? name + 1 : NULL;
}

/* Whether this segment already has its name: a segment that is being created holds nothing yet. */
static int
is_segment(const char *name)
{
	return name != NULL && strlen(name) == 24 && strspn(name, "0123456789ABCDEF") == 24;
}

static void
journal_of(const char *name, char *journal)
{
	snprintf(journal, PATH_MAX, "%s.%s", getenv("IDGEN_DISK"), name);
}

/* Whether there was one; removes it. */
static int
take_one(int32_t *count)
{
	int32_t		left = __atomic_load_n(count, __ATOMIC_SEQ_CST);

	while (left > 0)
		if (__atomic_compare_exchange_n(count, &left, left - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return 1;
	return 0;
}

static int
is_struck(void)
{
	if (take_one(&disk->spared) || !take_one(&disk->left))
		return 0;
	__atomic_add_fetch(&disk->struck, 1, __ATOMIC_SEQ_CST);
	return 1;
}

/* The error with which a call that writes has to fail, or 0. */
static int
before_write(int fd)
{
	char		path[PATH_MAX];

	if (disk == NULL || disk->write_errno == 0 || wal_file(fd, path) == NULL || !is_struck())
		return 0;
	return disk->write_errno;
}

/* Keeps the bytes that will be overwritten. */
static void
keep(int fd, size_t size, off_t at)
{
	char		path[PATH_MAX],
				journal[PATH_MAX];
	const char *name = disk == NULL ? NULL : wal_file(fd, path);
	int64_t		head[2] = {at, size};
	struct iovec parts[2];
	char	   *bytes;
	int			out;

	if (!is_segment(name))
		return;
	bytes = calloc(1, size);
	journal_of(name, journal);
	out = open(journal, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	parts[0] = (struct iovec) {head, sizeof head};
	parts[1] = (struct iovec) {bytes, size};
	if (bytes == NULL || pread(fd, bytes, size, at) < 0 || writev(out, parts, 2) < 0)
		_exit(99);				/* a test without its disk must not continue */
	__atomic_add_fetch(&disk->kept, 1, __ATOMIC_SEQ_CST);
	close(out);
	free(bytes);
}

static int
flush(int fd, int (*how) (int))
{
	char		path[PATH_MAX],
				journal[PATH_MAX];
	const char *name = disk == NULL ? NULL : wal_file(fd, path);
	int			result;

	if (name == NULL)
		return how(fd);
	if ((disk->stall_ms != 0 || disk->flush_errno != 0) && is_struck())
	{
		struct timespec stall = {disk->stall_ms / 1000, disk->stall_ms % 1000 * 1000000};

		nanosleep(&stall, NULL);
		if (disk->flush_errno != 0)
		{
			errno = disk->flush_errno;
			return -1;
		}
	}
	result = how(fd);
	if (result == 0 && is_segment(name))
	{
		journal_of(name, journal);
		if (truncate(journal, 0) < 0 && errno != ENOENT)
			_exit(99);
		errno = 0;
	}
	return result;
}

#define FAILS(fd) \
	do { \
		int			why = before_write(fd); \
		if (why != 0) \
		{ \
			errno = why; \
			return -1; \
		} \
	} while (0)

int
fsync(int fd)
{
	return flush(fd, REAL(fsync));
}

int
fdatasync(int fd)
{
	return flush(fd, REAL(fdatasync));
}

ssize_t
write(int fd, const void *bytes, size_t size)
{
	FAILS(fd);
	return REAL(write)(fd, bytes, size);
}

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t at)
{
	FAILS(fd);
	keep(fd, size, at);
	return REAL(pwrite)(fd, bytes, size, at);
}

ssize_t
pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
	FAILS(fd);
	keep(fd, size, at);
	return REAL(pwrite64)(fd, bytes, size, at);
}

ssize_t
pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
	FAILS(fd);
	return REAL(pwritev)(fd, parts, count, at);
}

ssize_t
pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
	FAILS(fd);
	return REAL(pwritev64)(fd, parts, count, at);
}

/* This one returns the error instead of setting errno. */
int
posix_fallocate(int fd, off_t at, off_t size)
{
	int			why = before_write(fd);

	return why != 0 ? why : REAL(posix_fallocate)(fd, at, size);
}
