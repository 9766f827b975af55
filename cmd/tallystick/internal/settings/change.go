package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Change reads the file, or begins one, has it changed, and puts it back: whole
// or not at all, and readable by its owner only. Others that change the file
// meanwhile, in this process or another, wait: none loses what another has
// done. The lock is that of an empty file beside, which stays.
func Change(path string, change func(*File) error) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // all links to a file have one lock
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return problem("settings %s: they cannot be locked: %v", path, err)
	}
	defer unlock()
	f, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = &File{}, nil
	}
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return err
	}
	if err := f.check(path); err != nil {
		return err
	}
	b, err := json.Marshal(f, jsontext.WithIndent("\t"), json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return WritePrivate(path, append(b, '\n'))
}

// WritePrivate puts a file of mode 0600 in its place, whole or not at all, and
// there to stay even if power is lost. Its folder is made for its owner only.
func WritePrivate(path string, b []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(b)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return err
	}
	return syncFolder(folder)
}

func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced there, and need not be
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
