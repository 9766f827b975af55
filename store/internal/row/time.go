package row

import (
	"cmp"
	"math"
	"time"
)

var (
	earliest = time.Unix(0, math.MinInt64)
	latest   = time.Unix(0, math.MaxInt64)
)

// Nanos is a time as a column holds it: nanoseconds since 1970, 0 for none.
// What is beyond the years 1678 to 2262 becomes the nearest time within them;
// the exact one is in the document.
func Nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Before(earliest):
		return math.MinInt64
	case t.After(latest):
		return math.MaxInt64
	}
	// The very start of 1970 is a time too, and fake clocks like it.
	return cmp.Or(t.UnixNano(), 1)
}

// Time reverses [Nanos].
func Time(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
