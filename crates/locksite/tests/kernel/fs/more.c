/* Compiled as a part of another file, as some of a scheduler are. */
void in_included_source(struct private *p)
{
	mutex_lock(&p->lock);
	work(p);
}
