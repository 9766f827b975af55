package sqlite

import (
	"errors"
	"os"
	"syscall"

	"github.com/tallystick/tallystick/store"
)

const errSharingViolation = syscall.Errno(32)

// lock opens the lock file so that nobody else can open it, or fails with
// store.ErrLocked. Windows closes it when the process ends, however that ends.
func lock(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, store.ErrLocked
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}
