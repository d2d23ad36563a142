package share

// Remembered counts the nodes of the tree.
func (p *Pool) Remembered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var count func(n *node) int
	count = func(n *node) int {
		total := len(n.children)
		for _, c := range n.children {
			total += count(c)
		}
		return total
	}
	return count(&p.root)
}
