package tallystick_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine outlives the servers that the tests stopped.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
