#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/sandbox.h"
#include "worker/sandbox_int.h"

/* Of linux/landlock.h, which is older here than the kernels that workers meet. */
typedef struct landlock_ruleset {
    uint64_t fs, net, scoped;
} landlock_ruleset;

typedef struct __attribute__((packed)) landlock_path_rule {
    uint64_t fs;
    int32_t folder_fd;
} landlock_path_rule;

#define CREATE_RULESET_VERSION 1u
#define RULE_PATH_BENEATH      1

#define FS_ABI_1     0x1fffu    /* execute, read, write, directories, make and remove every kind of file */
#define FS_FOLDER    0x12eu     /* write and read files, list, remove and make files */
#define FS_REFER     (1u << 13) /* ABI 2: link and rename between folders */
#define FS_TRUNCATE  (1u << 14) /* ABI 3 */
#define FS_IOCTL_DEV (1u << 15) /* ABI 5: of devices opened from now on */
#define NET_TCP      0x3u       /* ABI 4: bind and connect */
#define SCOPE_ALL    0x3u       /* ABI 6: abstract Unix sockets and signals of other domains */

int sandbox_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, CREATE_RULESET_VERSION);
    return abi > 0 ? (int)abi : 0;
}

static landlock_ruleset everything(int abi)
{
    landlock_ruleset r = {.fs = FS_ABI_1};
    r.fs |= abi >= 2 ? FS_REFER : 0;
    r.fs |= abi >= 3 ? FS_TRUNCATE : 0;
    r.fs |= abi >= 5 ? FS_IOCTL_DEV : 0;
    r.net = abi >= 4 ? NET_TCP : 0;
    r.scoped = abi >= 6 ? SCOPE_ALL : 0;
    return r;
}

status sandbox_landlock_enter(int abi, int folder_fd, err *e)
{
    /* Older kernels take a longer struct as long as what they do not know is zero. */
    landlock_ruleset r = everything(abi);
    int fd = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof r, 0u);
    if (fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot make a Landlock ruleset (version %d): %s", abi,
                       strerror(errno));
    }
    int why = 0;
    if (folder_fd >= 0) {
        const landlock_path_rule rule = {FS_FOLDER | (r.fs & FS_TRUNCATE), folder_fd};
        why = syscall(SYS_landlock_add_rule, fd, RULE_PATH_BENEATH, &rule, 0u) == 0 ? 0 : errno;
    }
    if (why == 0) {
        why = syscall(SYS_landlock_restrict_self, fd, 0u) == 0 ? 0 : errno;
    }
    close(fd);
    return why == 0 ? ST_OK : err_set(e, ST_IO, NULL, "cannot enter a Landlock domain: %s", strerror(why));
}
