/* sanitized: SANITIZED is 1 in a build whose memory accesses are watched (address or thread sanitizer), else 0. */
#ifndef HEARTH_BASE_SANITIZED_H
#define HEARTH_BASE_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature) /* clang's way to tell */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
