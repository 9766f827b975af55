package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// step is one call of a file system, counted from 0; recorder remembers all
// and does something else at one.
type recorder struct {
	disk
	done []string
	at   int    // the step to fail at, -1 for none
	how  string // "crash before", "crash after", "crash halfway" or "error"
}

// crash is what a recorder panics with: nothing of the program runs after it.
type crash struct{}

var errDisk = errors.New("disk failed")

func (r *recorder) step(name string, do func() error) error {
	here := len(r.done) == r.at
	r.done = append(r.done, name)
	if here && r.how == "crash before" {
		panic(crash{})
	}
	if here && r.how == "error" {
		return errDisk
	}
	err := do()
	if here && r.how == "crash after" {
		panic(crash{})
	}
	return err
}

func (r *recorder) create(folder, pattern string) (f temporaryFile, err error) {
	err = r.step("create", func() (err error) { f, err = r.disk.create(folder, pattern); return err })
	if err != nil {
		return nil, err
	}
	return &recordedFile{f, r}, nil
}

func (r *recorder) link(from, to string) error {
	return r.step("link", func() error { return r.disk.link(from, to) })
}

func (r *recorder) rename(from, to string) error {
	return r.step("rename", func() error { return r.disk.rename(from, to) })
}

func (r *recorder) remove(path string) {
	_ = r.step("remove", func() error { r.disk.remove(path); return nil })
}

func (r *recorder) syncFolder(path string) error {
	return r.step("sync folder", func() error { return r.disk.syncFolder(path) })
}

type recordedFile struct {
	temporaryFile
	r *recorder
}

func (f *recordedFile) Write(b []byte) (n int, err error) {
	if len(f.r.done) == f.r.at && f.r.how == "crash halfway" {
		_, _ = f.temporaryFile.Write(b[:len(b)/2])
		panic(crash{})
	}
	err = f.r.step("write", func() (err error) { n, err = f.temporaryFile.Write(b); return err })
	return n, err
}

func (f *recordedFile) Sync() error  { return f.r.step("sync", f.temporaryFile.Sync) }
func (f *recordedFile) Close() error { return f.r.step("close", f.temporaryFile.Close) }

// crashes reports whether do ended in a crash.
func crashes(do func() error) (crashed bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, crashed = p.(crash); !crashed {
				panic(p)
			}
		}
	}()
	return false, do()
}

var ways = []string{"crash before", "crash after", "crash halfway", "error"}

func TestCrashWhileCreatingLeavesNoFileOrAWholeOne(t *testing.T) {
	order := &recorder{at: -1}
	if _, err := openOrCreate(order, filepath.Join(t.TempDir(), "key.json")); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(order.done), "[create write sync close link remove sync folder]"; got != want {
		t.Fatalf("steps are %s, want %s", got, want)
	}
	for at := range order.done {
		for _, how := range ways {
			path := filepath.Join(t.TempDir(), "key.json")
			r := &recorder{at: at, how: how}
			var k *Keyset
			crashed, err := crashes(func() (err error) { k, err = openOrCreate(r, path); return err })
			what := fmt.Sprintf("%s at %s", how, order.done[at])
			if !crashed && err == nil && order.done[at] != "remove" && how != "crash halfway" {
				t.Errorf("%s: nothing was noticed", what)
			}
			left, err := LoadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: the file that is left does not load: %v", what, err)
			}
			again, err := OpenOrCreateFile(path)
			if err != nil {
				t.Errorf("%s: the next start fails: %v", what, err)
				continue
			}
			for _, before := range []*Keyset{k, left} {
				if before != nil && fmt.Sprint(before.List()) != fmt.Sprint(again.List()) {
					t.Errorf("%s: the next start has another key", what)
				}
			}
			onlyPrivateFiles(t, filepath.Dir(path))
		}
	}
}

func TestCrashWhileSavingLeavesTheOldFileOrTheNewOne(t *testing.T) {
	for _, how := range ways {
		for at := range 6 {
			path := filepath.Join(t.TempDir(), "key.json")
			k, err := OpenOrCreateFile(path)
			if err != nil {
				t.Fatal(err)
			}
			before := fmt.Sprint(k.List())
			if _, err := k.Add(); err != nil {
				t.Fatal(err)
			}
			r := &recorder{at: at, how: how}
			crashed, err := crashes(func() error { return replaceFile(r, path, k) })
			what := fmt.Sprintf("%s at %s", how, r.done[min(at, len(r.done)-1)])
			if !crashed && err == nil && how != "crash halfway" {
				t.Errorf("%s: nothing was noticed", what)
			}
			left, err := LoadFile(path)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if got := fmt.Sprint(left.List()); got != before && got != fmt.Sprint(k.List()) {
				t.Errorf("%s: the file has the keys %s", what, got)
			}
			if how == "error" {
				if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
					t.Errorf("%s: leaves its temporary file behind: %v", what, files)
				}
			}
			onlyPrivateFiles(t, filepath.Dir(path))
			if err := k.SaveFile(path); err != nil {
				t.Errorf("%s: saving again: %v", what, err)
			}
		}
	}
}

func onlyPrivateFiles(t *testing.T, folder string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has the mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

func TestSavedFileLoads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	k := newTestKeyset(t)
	if err := k.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	onlyPrivateFiles(t, filepath.Dir(path))
	state := mustSeal(t, newTestSealer(t, k, audience), testClaims())
	id, err := k.Add()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Promote(id); err != nil {
		t.Fatal(err)
	}
	if err := k.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	for _, load := range []func(string) (*Keyset, error){LoadFile, OpenOrCreateFile} {
		loaded, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(loaded.List()) != fmt.Sprint(k.List()) {
			t.Errorf("saved %v, loaded %v", k.List(), loaded.List())
		}
		if _, err := newTestSealer(t, loaded, audience).Open(state); err != nil {
			t.Error(err)
		}
	}
}

func TestSavingThroughALinkKeepsTheLink(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "key.json"), filepath.Join(folder, "link.json")
	k, err := OpenOrCreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("key.json", link); err != nil {
		t.Fatal("this test needs a folder that can hold symbolic links (on Windows: developer mode): ", err)
	}
	if _, err := k.Add(); err != nil {
		t.Fatal(err)
	}
	if err := k.SaveFile(link); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadFile(path); err != nil || len(got.List()) != 2 {
		t.Errorf("the file behind the link was not saved: %v", err)
	}
}

// Refused files stay as they are, whatever is tried.
func TestUnfitFileIsRefusedAndKept(t *testing.T) {
	var whole bytes.Buffer
	k := newTestKeyset(t)
	if err := k.Write(&whole); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, content string
		mode          fs.FileMode
		want          string
	}{
		{"empty", "", 0o600, "Restore it from a backup"},
		{"cut short", whole.String()[:whole.Len()/2], 0o600, "Restore it from a backup"},
		{"something else", "hello", 0o600, "Restore it from a backup"},
		{"over 1 MiB", whole.String() + strings.Repeat(" ", 1<<20), 0o600, "keyset 1 MiB"},
		{"readable by the group", whole.String(), 0o640, "chmod 600"},
		{"readable by all", whole.String(), 0o644, "chmod 600"},
		{"writable by others", whole.String(), 0o602, "chmod 600"},
	} {
		if runtime.GOOS == "windows" && test.mode != 0o600 {
			continue
		}
		path := filepath.Join(t.TempDir(), "key.json")
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		_, loadErr := LoadFile(path)
		_, openErr := OpenOrCreateFile(path)
		saveErr := k.SaveFile(path)
		for what, err := range map[string]error{"LoadFile": loadErr, "OpenOrCreateFile": openErr, "SaveFile": saveErr} {
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %s: %v", test.name, what, err)
			} else if strings.Contains(err.Error(), secretOf(t, k)[:16]) {
				t.Errorf("%s: %s: the error holds the key: %v", test.name, what, err)
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != test.content {
			t.Errorf("%s: the file was changed", test.name)
		}
		if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
			t.Errorf("%s: files are left behind: %v", test.name, files)
		}
	}
}

func TestSavingDoesNotLoseAKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	k, err := OpenOrCreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := newTestKeyset(t).SaveFile(path); err == nil || !strings.Contains(err.Error(), fmt.Sprint(k.List()[0].ID)) {
		t.Errorf("another keyset took the place of the file's: %v", err)
	}
	// Two people rotate at once; the second would undo the first.
	first, second := copyKeyset(t, k), copyKeyset(t, k)
	for _, each := range []*Keyset{first, second} {
		if _, err := each.Add(); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	if err := second.SaveFile(path); err == nil {
		t.Error("the second undid the first")
	}
}

func TestPathsThatAreNoFile(t *testing.T) {
	folder := t.TempDir()
	if _, err := LoadFile(filepath.Join(folder, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := OpenOrCreateFile(filepath.Join(folder, "none", "key.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	if _, err := OpenOrCreateFile(folder); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	dangling := filepath.Join(folder, "dangling")
	if err := os.Symlink("nowhere", dangling); err == nil {
		if _, err := OpenOrCreateFile(dangling); err == nil {
			t.Error("a link to nowhere is opened")
		}
	}
}
