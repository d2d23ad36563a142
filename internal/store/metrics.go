package store

// Metrics are numbers about a store, for those who watch it.
type Metrics struct {
	// DiskBytes is what the engine's files take, LogBytes what of that are
	// logs, those kept for reuse included.
	DiskBytes uint64
	LogBytes  uint64
	// MemTableBytes and CacheBytes are memory.
	MemTableBytes uint64
	CacheBytes    int64
	// Tables is the number of sorted tables, ReadAmplification how many of them
	// a read has to look into at most.
	Tables            int64
	ReadAmplification int
	// CompactionDebtBytes is how much is left to be compacted; a number that
	// grows and grows means that the disk is too slow for the traffic.
	CompactionDebtBytes uint64
	Flushes             int64
	Compactions         int64
}

// Metrics returns the numbers as they are now. It does not touch the disk.
// After Close it returns zeros.
func (s *Store) Metrics() Metrics {
	if !s.gate.enter() {
		return Metrics{}
	}
	defer s.gate.leave()
	m := s.db.Metrics()
	total := m.Total()
	return Metrics{
		DiskBytes:           m.DiskSpaceUsage(),
		LogBytes:            m.WAL.PhysicalSize + m.WAL.ObsoletePhysicalSize,
		MemTableBytes:       m.MemTable.Size,
		CacheBytes:          m.BlockCache.Size,
		Tables:              total.TablesCount,
		ReadAmplification:   m.ReadAmp(),
		CompactionDebtBytes: m.Compact.EstimatedDebt,
		Flushes:             m.Flush.Count,
		Compactions:         m.Compact.Count,
	}
}
