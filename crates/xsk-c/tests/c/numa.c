/* The memory of a UMEM is on node 0, and on no node that is not there: numa DEVICE PEER 0. */
#include "check.h"

/* Whether the kernel shows the memory of a UMEM with this policy. */
static int is_shown(const char *policy)
{
	FILE *maps = fopen("/proc/self/numa_maps", "r");
	char line[512];
	int found = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "xsk-umem") && strstr(line, policy);
	fclose(maps);
	return found;
}

int main(void)
{
	struct weir_xsk_umem_options options = { .size = sizeof(options), .chunks = 64 };
	struct weir_xsk_umem *umem;

	OK(weir_xsk_umem_create(&options, &umem));
	CHECK(is_shown("default") && !is_shown("bind:0"));
	OK(weir_xsk_umem_close(umem));
	options.flags = WEIR_XSK_NUMA_NODE;
	OK(weir_xsk_umem_create(&options, &umem));
	CHECK(is_shown("bind:0"));
	OK(weir_xsk_umem_close(umem));
	/* A program built before has no such field, whatever is behind its structure. */
	options.numa_node = 1000;
	options.size = offsetof(struct weir_xsk_umem_options, numa_node);
	CHECK(options.size == 24);
	options.flags = 0;
	OK(weir_xsk_umem_create(&options, &umem));
	OK(weir_xsk_umem_close(umem));
	options.size = sizeof(options);
	options.flags = WEIR_XSK_NUMA_NODE;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &umem));
	printf("the memory is on its node\n");
	return EXIT_SUCCESS;
}
