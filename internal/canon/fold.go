package canon

import (
	"fmt"
	"unicode"
)

// CheckFold refuses an object with a member that is not known but would be if
// case did not count: some decoders would take {"Name":…} for name, so that
// what was checked is not what is used. Case is Unicode's simple folding,
// in which ſ (U+017F) is s and K (U+212A) is k.
//
// Only the members of raw itself are looked at, not those inside its values.
// What is not an object passes; what [Canonical] would refuse because of its
// syntax, encoding or nesting is refused. The error is [ErrFold] or theirs.
func CheckFold(raw []byte, known []string) error {
	if len(raw) == 0 {
		return nil
	}
	exact := make(map[string]bool, len(known))
	folded := make(map[string]string, len(known))
	for _, name := range known {
		exact[name] = true
		folded[fold(name)] = name
	}
	r, err := newReader(raw)
	if err != nil {
		return err
	}
	defer r.free()
	for {
		t, err := r.token()
		if err != nil {
			return err
		}
		depth := r.dec.StackDepth()
		if depth > MaxDepth {
			return fmt.Errorf("%w: at byte %d", ErrDepth, r.dec.InputOffset())
		}
		if depth == 0 {
			return r.end()
		}
		// In an object, names are the tokens that make the count odd.
		kind, count := r.dec.StackIndex(1)
		if depth != 1 || kind != '{' || count%2 == 0 {
			continue
		}
		name := t.String()
		if like, ok := folded[fold(name)]; ok && !exact[name] {
			return fmt.Errorf("%w: %s is not %s", ErrFold, shown(name), shown(like))
		}
	}
}

// fold maps texts that differ by case only to one text: every character to the
// smallest that it folds to.
func fold(s string) string {
	folded := make([]rune, 0, len(s))
	for _, r := range s {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		folded = append(folded, least)
	}
	return string(folded)
}
