package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// mode is that of a key file: for the server's user alone.
const mode fs.FileMode = 0o600

// LoadFile reads the keyset of a key file. The file must be readable by its
// owner only; other files are refused with the command that mends them. A
// missing file is [fs.ErrNotExist], a damaged one [ErrKeyset].
func LoadFile(path string) (*Keyset, error) {
	k, err := loadFile(path)
	if errors.Is(err, ErrKeyset) {
		return nil, fmt.Errorf("key file %s: %w. Restore it from a backup. Without one, move it away and a new key is made, "+
			"but no state that is out will open any more", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return k, nil
}

func loadFile(path string) (*Keyset, error) {
	// Before opening it: opening a pipe would wait for its other end.
	info, err := os.Stat(path)
	if err != nil {
		return nil, reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	// Again and of the open file: the path may lead elsewhere by now.
	if info, err = f.Stat(); err != nil {
		return nil, reason(err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("mode %04o lets others read or change the key: run chmod 600 %s", perm, path)
	}
	return ReadKeyset(f)
}

// OpenOrCreateFile reads the keyset of a key file, and makes the file with a
// new key if there is none. When it returns, the file is there to stay, even
// if power is lost, so states may be sealed. It never changes a file that is
// there, and of several processes that create one file, all get the same key.
//
// The folder must exist, and its file system must know hard links.
func OpenOrCreateFile(path string) (*Keyset, error) { return openOrCreate(disk{}, path) }

func openOrCreate(d fileSystem, path string) (*Keyset, error) {
	k, err := LoadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createFile(d, path); err == nil {
			k, err = LoadFile(path)
		}
	}
	if err != nil {
		return nil, err
	}
	// Also of a file that was found: who made it may have crashed, or not yet
	// come to this.
	if err := d.syncFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("key file %s: syncing its folder: %w", path, reason(err))
	}
	return k, nil
}

// createFile makes the file with a new key, or leaves the one that another
// process was first to make.
func createFile(d fileSystem, path string) error {
	k, err := NewKeyset()
	if err != nil {
		return err
	}
	temporary, err := writeTemporary(d, path, k)
	if err != nil {
		return fmt.Errorf("creating key file %s: %w", path, reason(err))
	}
	// A link, since a rename would replace another process's file, whose key
	// may have sealed by now.
	err = d.link(temporary, path)
	d.remove(temporary)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("creating key file %s: %w; if its file system has no hard links, make the file elsewhere and copy it", path, reason(err))
	}
	return nil
}

// ChangeFile loads the keyset of a key file, has it changed, saves it as
// [Keyset.SaveFile] does, and returns it. Others that change or save the file
// meanwhile, in this process or another, wait: none loses what another has
// done. An error of change is returned as it is, and the file stays as it was.
// A missing file is [fs.ErrNotExist], a damaged one [ErrKeyset].
func ChangeFile(path string, change func(*Keyset) error) (*Keyset, error) {
	if _, err := LoadFile(path); err != nil {
		return nil, err // and no lock file beside what is no key file
	}
	path, unlock, err := lockKeyFile(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	k, err := LoadFile(path)
	if err != nil {
		return nil, err
	}
	if err := change(k); err != nil {
		return nil, err
	}
	if err := k.save(path); err != nil {
		return nil, err
	}
	return k, nil
}

// SaveFile writes the keyset to a key file, in place of the one that is there:
// after a crash it is the old one or the new one, whole. What would lose a key
// is refused: a file that does not load, or that has a key that k has not.
// What another process has promoted or disabled since k was loaded is undone:
// use [ChangeFile] if several may change a file. Run it as the user of the
// server, since the file will be that user's alone.
//
// One at a time saves: the others wait for the lock of the empty file that
// stays beside, path + ".lock". Systems without flock (Windows, AIX, Solaris)
// have no such lock, and there one process at a time should save a file.
func (k *Keyset) SaveFile(path string) error {
	if _, err := LoadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // and no lock file beside what is no key file
	}
	path, unlock, err := lockKeyFile(path)
	if err != nil {
		return err
	}
	defer unlock()
	return k.save(path)
}

// lockKeyFile waits for the lock of a key file. real is the path of the file
// itself: a link keeps pointing to it, instead of being replaced by it, and all
// links to a file have one lock.
func lockKeyFile(path string) (real string, unlock func(), err error) {
	real, err = filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	if unlock, err = lockFile(real + ".lock"); err != nil {
		return real, nil, fmt.Errorf("key file %s: locking %s.lock: %w", path, real, reason(err))
	}
	return real, unlock, nil
}

// save is SaveFile by whoever has the lock.
func (k *Keyset) save(path string) error {
	old, err := LoadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old != nil {
		if id, ok := old.notIn(k); ok {
			return fmt.Errorf("key file %s: saving would lose its key %d: load the file and change that keyset", path, id)
		}
	}
	if err := replaceFile(disk{}, path, k); err != nil {
		return fmt.Errorf("saving key file %s: %w", path, reason(err))
	}
	return nil
}

// notIn returns a key of k that other has not.
func (k *Keyset) notIn(other *Keyset) (id uint32, ok bool) {
	has := map[uint32]bool{}
	for _, info := range other.List() {
		has[info.ID] = true
	}
	for _, info := range k.List() {
		if !has[info.ID] {
			return info.ID, true
		}
	}
	return 0, false
}

func replaceFile(d fileSystem, path string, k *Keyset) error {
	temporary, err := writeTemporary(d, path, k)
	if err != nil {
		return err
	}
	if err := d.rename(temporary, path); err != nil {
		d.remove(temporary)
		return err
	}
	return d.syncFolder(filepath.Dir(path))
}

// writeTemporary writes the keyset beside path, down to the disk: the file
// gets its name only when all of it is there.
func writeTemporary(d fileSystem, path string, k *Keyset) (string, error) {
	var b bytes.Buffer
	if err := k.Write(&b); err != nil {
		return "", err
	}
	f, err := d.create(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b.Bytes())
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		d.remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// reason drops the path from an error whose text will name it.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}

// fileSystem is every step of writing a key file, so that tests can crash at
// each.
type fileSystem interface {
	create(folder, pattern string) (temporaryFile, error) // mode 0600
	link(from, to string) error
	rename(from, to string) error
	remove(path string)
	syncFolder(path string) error
}

type temporaryFile interface {
	Name() string
	Write([]byte) (int, error)
	Sync() error
	Close() error
}

type disk struct{}

func (disk) create(folder, pattern string) (temporaryFile, error) {
	f, err := os.CreateTemp(folder, pattern)
	if err != nil {
		return nil, err
	}
	// CreateTemp asks for this mode too, but a umask may have taken from it.
	if err := f.Chmod(mode); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	return f, nil
}

func (disk) link(from, to string) error   { return os.Link(from, to) }
func (disk) rename(from, to string) error { return os.Rename(from, to) }

// remove is of a temporary file that is in nobody's way: if it stays, it is a
// file as private as the key file.
func (disk) remove(path string) { _ = os.Remove(path) }

func (disk) syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced there, and need not be
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}
