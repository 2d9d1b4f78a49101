package standalone

import (
	"fmt"
	"os"
)

// childRole names what a re-executed test binary does instead of testing.
const childRole = "COORDSVC_STANDALONE_CHILD"

func runChild(role string) int {
	fmt.Fprintln(os.Stderr, "unknown role", role)
	return 2
}
