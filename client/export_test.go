package client

// OnWrite has f called before and after each statement that writes.
func (o *MemoryOptions) OnWrite(f func(statement string, done bool)) { o.writes = f }
