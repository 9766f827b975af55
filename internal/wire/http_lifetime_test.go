package wire

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

func TestShutdownWaitsForRunningRequests(t *testing.T) {
	fake := newFake()
	front, server := newHTTPServer(t, fake, nil)
	status := make(chan int)
	go func() {
		s, _ := send(t, server, newPost(t, server.URL, call("1", "block", "{}")))
		status <- s
	}()
	<-fake.entered
	stopped := make(chan error)
	go func() { stopped <- front.Shutdown(context.Background()) }()
	<-front.life.streams.Done() // it has begun
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown returned %v with a request running", err)
	default:
	}
	close(fake.release)
	if s := <-status; s != http.StatusOK {
		t.Errorf("status %d", s)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestShutdownCancelsWhatIsStillRunningAtItsEnd(t *testing.T) {
	fake := newFake()
	front, server := newHTTPServer(t, fake, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		send(t, server, newPost(t, server.URL, call("1", "block", "{}")))
	}()
	<-fake.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := front.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if cause := <-fake.ended; !errors.Is(cause, ErrShutdown) {
		t.Errorf("cause %v", cause)
	}
	<-done
}

func TestHardenKeepsWhatIsSet(t *testing.T) {
	s := &http.Server{MaxHeaderBytes: 1}
	Harden(s)
	if s.ReadHeaderTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes != 1 || s.WriteTimeout != 0 || s.ReadTimeout != 0 {
		t.Errorf("got %+v", s)
	}
}
