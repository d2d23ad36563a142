package store

// Metrics are measurements of a store.
type Metrics struct {
	// DiskBytes is the size of the engine's files, LogBytes that of the logs among them,
	// including those kept for reuse.
	DiskBytes uint64
	LogBytes  uint64
	// MemTableBytes and CacheBytes are sizes in memory.
	MemTableBytes uint64
	CacheBytes    int64
	// Tables is the number of sorted tables, ReadAmplification the largest number of them that
	// a read visits.
	Tables            int64
	ReadAmplification int
	// CompactionDebtBytes is the amount of data that waits for compaction; a value that keeps
	// growing means that the disk is too slow for the traffic.
	CompactionDebtBytes uint64
	Flushes             int64
	Compactions         int64
}

// Metrics returns the current values. It does not access the disk. After Close it returns
// zeros.
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
