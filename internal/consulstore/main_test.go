package consulstore

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// atEnd ends what tests share.
var atEnd []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
