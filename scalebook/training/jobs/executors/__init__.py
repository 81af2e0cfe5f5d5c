"""Where jobs run: one small seam, and what stands behind it. Local is the first."""
