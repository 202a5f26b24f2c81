/* A slow disk: `fsync` and `fdatasync` that wait as long as a file says (LD_PRELOAD).
 *
 * The file $SLOW_DISK has the milliseconds that each takes, two numbers between which each is, or
 * `hold`: then each waits until the file says something else. $SLOW_DISK.log gets a line for each
 * synchronisation of a write-ahead log (`*-wal`) that begins or ends, with the size that the log had
 * when it began: what is behind that is not on the disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How often the file is read while it says `hold`. */
#define LOOK_EVERY_MS 2

static void wait_ms(long ms)
{
    struct timespec span = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&span, NULL);
}

/* Waits as long as the file says. */
static void take_long(const char *file)
{
    static unsigned turn;
    for (;;) {
        char text[64] = "";
        long least = 0, most = 0;
        int fd = open(file, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return;
        ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        if (length > 0 && strncmp(text, "hold", 4) == 0) {
            wait_ms(LOOK_EVERY_MS);
            continue;
        }
        if (sscanf(text, "%ld %ld", &least, &most) < 1)
            return;
        /* Spread over the range, the same in each run: the multiplier is prime. */
        if (most > least)
            least += (long)(__sync_add_and_fetch(&turn, 1) * 7919u % (unsigned)(most - least));
        wait_ms(least);
        return;
    }
}

static void note(const char *file, const char *word, off_t size)
{
    char path[4096], line[64];
    snprintf(path, sizeof path, "%s.log", file);
    int length = snprintf(line, sizeof line, "%s %lld\n", word, (long long)size);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (write(fd, line, (size_t)length) != length)
            abort();
        close(fd);
    }
}

/* The size of a write-ahead log; -1 of any other file. */
static off_t log_size(int fd)
{
    char link[64], path[4096];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    int is_log = length > 4 && memcmp(path + length - 4, "-wal", 4) == 0;
    return is_log && fstat(fd, &found) == 0 ? found.st_size : -1;
}

static int synchronise(const char *name, int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *file = getenv("SLOW_DISK");
    if (!file)
        return next(fd);
    off_t size = log_size(fd);
    if (size >= 0)
        note(file, "began", size);
    take_long(file);
    int result = next(fd);
    if (size >= 0 && result == 0)
        note(file, "ended", size);
    return result;
}

int fsync(int fd)
{
    return synchronise("fsync", fd);
}

int fdatasync(int fd)
{
    return synchronise("fdatasync", fd);
}
