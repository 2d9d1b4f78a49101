//go:build unix

package standalone

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes an exclusive advisory lock, which ends with the process; false when another process holds it.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
