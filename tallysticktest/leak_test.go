package tallysticktest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Dead servers leave nothing behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
