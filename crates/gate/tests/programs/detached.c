/* Many detached threads, one after another and some at once: their records must come back. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static sem_t done;

static void *work(void *x) {
    int fd = open("/dev/null", O_RDONLY);
    long at = lseek(fd, 0, SEEK_SET);
    close(fd);
    sem_post(&done);
    return (void *)at;
}

int main(void) {
    pthread_attr_t a;
    int failed = 0;
    sem_init(&done, 0, 0);
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    for (int round = 0; round < 500; round++) {
        pthread_t t;
        for (int i = 0; i < 8; i++) failed += pthread_create(&t, &a, work, NULL) != 0;
        for (int i = 0; i < 8; i++) sem_wait(&done);
    }
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int maps = 0;
    while (fgets(line, sizeof line, f)) maps++;
    printf("failed %d, leaked %d\n", failed, maps > 300);
    return 0;
}
