/* Names of the program's functions, also of those that only their own file knows: the linker keeps them in the table
 * of symbols of the file, where `dladdr` does not look. */
#define _GNU_SOURCE
#include "glue.h"
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const Elf64_Sym *symbols;
static size_t symbols_len;
static const char *strings;
/* Where the program lies in memory. */
static uintptr_t base;

void symbols_read(void) {
    struct stat about;
    Dl_info own;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) < 0 || !dladdr((void *)symbols_read, &own)) return;
    const char *file = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) return;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
    for (int j = 0; j < head->e_shnum; j++) {
        if (sections[j].sh_type != SHT_SYMTAB) continue;
        symbols = (const Elf64_Sym *)(file + sections[j].sh_offset);
        symbols_len = sections[j].sh_size / sizeof *symbols;
        strings = file + sections[sections[j].sh_link].sh_offset;
    }
    base = head->e_type == ET_DYN ? (uintptr_t)own.dli_fbase : 0;
}

const char *symbol_name(const void *code) {
    uintptr_t at = (uintptr_t)code - base;
    for (size_t j = 0; j < symbols_len; j++) {
        const Elf64_Sym *s = symbols + j;
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && at - s->st_value < s->st_size) return strings + s->st_name;
    }
    Dl_info info;
    return dladdr(code, &info) && info.dli_sname ? info.dli_sname : "?";
}
